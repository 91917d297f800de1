// CUDA kernels of cross_entropy: a block per row of logits. The largest logit and the sum of
// exponentials come from one pass; backward is a second one, over a row that may still be in cache.
#include <cmath>
#include <limits>

#include "ops/cross_entropy/cross_entropy.h"
#include "runtime/cuda/block.cuh"

namespace duet {
namespace {

constexpr int kScalarThreads = 1024;
constexpr int kEach = 8;  // logits of a thread in one batch

struct Targets {
  const void* data;
  bool narrow;  // i32
  std::int64_t vocab, ignored;

  __device__ std::int64_t operator[](std::int64_t n) const {
    return narrow ? static_cast<const std::int32_t*>(data)[n]
                  : static_cast<const std::int64_t*>(data)[n];
  }
  __device__ bool counts(std::int64_t target) const {
    return target != ignored && target >= 0 && target < vocab;
  }
};

Targets targets_of(ConstView targets, std::int64_t vocab, const CrossEntropyOptions& options) {
  return {targets.data, targets.dtype == DType::i32, vocab, options.ignore_index};
}

// --- one number

__global__ void loss_factor_kernel(Targets targets, std::int64_t count, double normalizer,
                                   const float* dy, double* factor) {
  std::int64_t counted = 0;
  if (!(normalizer > 0)) {
    for (std::int64_t n = threadIdx.x; n < count; n += kScalarThreads) {
      counted += targets[n] != targets.ignored ? 1 : 0;
    }
    counted = cuda::block_reduce<cuda::Sum, kScalarThreads>(counted);
    normalizer = static_cast<double>(counted);
  }
  if (threadIdx.x != 0) return;
  const double scale = dy != nullptr ? static_cast<double>(*dy) : 1.0;
  *factor = normalizer > 0 ? scale * (1 / normalizer) : 0;
}

__global__ void store_loss_kernel(const double* losses, std::int64_t count, const double* factor,
                                  float* loss) {
  double sum = 0;
  for (std::int64_t n = threadIdx.x; n < count; n += kScalarThreads) sum += losses[n];
  sum = cuda::block_reduce<cuda::Sum, kScalarThreads>(sum);
  if (threadIdx.x == 0) *loss = static_cast<float>(sum * *factor);
}

// --- rows

// kEach logits of one thread: Vectors that lie kThreads Vectors apart, so that the block reads side
// by side.
template <class Vector, int kThreads>
struct Batch {
  static constexpr int kWide = sizeof(Vector) / sizeof(float);
  static constexpr int kVectors = kEach / kWide;
  static constexpr std::int64_t kSpan = std::int64_t{kThreads} * kEach;  // of the block
  Vector values[kVectors];

  __device__ static std::int64_t column(std::int64_t begin, int u) {
    return begin + (static_cast<std::int64_t>(u) * kThreads + threadIdx.x) * kWide;
  }
  __device__ float* floats(int u) { return reinterpret_cast<float*>(&values[u]); }

  // Columns from `begin` on; -inf beyond n, whose exponential is 0.
  __device__ void load(const float* x, std::int64_t begin, std::int64_t n) {
    for (int u = 0; u < kVectors; ++u) {
      const std::int64_t c = column(begin, u);
      if (c < n) {
        values[u] = *reinterpret_cast<const Vector*>(x + c);
      } else {
        for (int k = 0; k < kWide; ++k) floats(u)[k] = -std::numeric_limits<float>::infinity();
      }
    }
  }
  __device__ void store(float* y, std::int64_t begin, std::int64_t n) const {
    for (int u = 0; u < kVectors; ++u) {
      const std::int64_t c = column(begin, u);
      if (c < n) *reinterpret_cast<Vector*>(y + c) = values[u];
    }
  }
};

// Where all is -inf so far, exp(-inf - 0) = 0; -inf - -inf would be NaN.
__device__ float shift_for(float largest) {
  return largest == -std::numeric_limits<float>::infinity() ? 0.0F : largest;
}

struct RowSum {
  float largest;
  double sum;  // of exp(x - largest)
};

// The whole block gets it. NaN is never the largest, but makes the sum NaN.
template <class Vector, int kThreads>
__device__ RowSum exp_sum(const float* x, std::int64_t n) {
  using Logits = Batch<Vector, kThreads>;
  float largest = -std::numeric_limits<float>::infinity();
  double sum = 0;
  for (std::int64_t begin = 0; begin < n; begin += Logits::kSpan) {
    Logits logits;
    logits.load(x, begin, n);
    float top = largest;
    for (int i = 0; i < kEach; ++i) {
      top = fmaxf(top, logits.floats(i / Logits::kWide)[i % Logits::kWide]);
    }
    const float shift = shift_for(top);
    if (top > largest) sum *= static_cast<double>(expf(largest - shift));
    float part = 0;
    for (int i = 0; i < kEach; ++i) {
      part += expf(logits.floats(i / Logits::kWide)[i % Logits::kWide] - shift);
    }
    sum += static_cast<double>(part);
    largest = top;
  }
  const float top = cuda::block_reduce<cuda::Max, kThreads>(largest);
  const auto shift = static_cast<double>(shift_for(top));
  if (largest != top) sum *= std::exp(static_cast<double>(largest) - shift);
  return {top, cuda::block_reduce<cuda::Sum, kThreads>(sum)};
}

// y = (exp(x - largest) / sum - onehot(target)) * factor; y may be x.
template <class Vector, int kThreads>
__device__ void gradient_row(const float* x, std::int64_t n, const RowSum& row, std::int64_t target,
                             double factor, float* y) {
  using Logits = Batch<Vector, kThreads>;
  const auto scale = static_cast<float>(factor / row.sum);
  for (std::int64_t begin = 0; begin < n; begin += Logits::kSpan) {
    Logits logits;
    logits.load(x, begin, n);
    for (int i = 0; i < kEach; ++i) {
      const int u = i / Logits::kWide, k = i % Logits::kWide;
      float& value = logits.floats(u)[k];
      if (Logits::column(begin, u) + k == target) {
        // In double: a probability near 1 would lose its distance from 1.
        const double p =
            std::exp(static_cast<double>(value) - static_cast<double>(row.largest)) / row.sum;
        value = static_cast<float>((p - 1) * factor);
      } else {
        value = expf(value - row.largest) * scale;
      }
    }
    logits.store(y, begin, n);
  }
}

template <class Vector, int kThreads>
__device__ void zero_row(float* y, std::int64_t n) {
  Batch<Vector, kThreads> zeros{};
  for (std::int64_t begin = 0; begin < n; begin += Batch<Vector, kThreads>::kSpan) {
    zeros.store(y, begin, n);
  }
}

template <class Vector, int kThreads>
__global__ void __launch_bounds__(kThreads)
    loss_rows_kernel(const float* logits, std::int64_t row_stride, Targets targets,
                     std::int64_t count, const double* factor, double* stats, double* losses,
                     float* dlogits) {
  const std::int64_t vocab = targets.vocab;
  for (std::int64_t n = blockIdx.x; n < count; n += gridDim.x) {
    const float* x = logits + n * row_stride;
    const std::int64_t target = targets[n];
    RowSum row{0, 0};
    double loss = 0;
    if (targets.counts(target)) {
      row = exp_sum<Vector, kThreads>(x, vocab);
      const auto largest = static_cast<double>(row.largest);
      if (threadIdx.x == 0) loss = largest - static_cast<double>(x[target]) + std::log(row.sum);
      __syncthreads();  // x[target] may be overwritten now
      if (dlogits != nullptr) {
        gradient_row<Vector, kThreads>(x, vocab, row, target, *factor, dlogits + n * vocab);
      }
    } else if (dlogits != nullptr) {
      zero_row<Vector, kThreads>(dlogits + n * vocab, vocab);
    }
    if (threadIdx.x != 0) continue;
    losses[n] = loss;
    if (stats == nullptr) continue;
    stats[2 * n] = static_cast<double>(row.largest);
    stats[2 * n + 1] = row.sum;
  }
}

template <class Vector, int kThreads>
__global__ void __launch_bounds__(kThreads)
    gradient_rows_kernel(const float* logits, std::int64_t row_stride, Targets targets,
                         std::int64_t count, const double* factor, const double* stats,
                         float* dlogits) {
  const std::int64_t vocab = targets.vocab;
  for (std::int64_t n = blockIdx.x; n < count; n += gridDim.x) {
    const std::int64_t target = targets[n];
    float* y = dlogits + n * vocab;
    if (targets.counts(target)) {
      const RowSum row{static_cast<float>(stats[2 * n]), stats[2 * n + 1]};
      gradient_row<Vector, kThreads>(logits + n * row_stride, vocab, row, target, *factor, y);
    } else {
      zero_row<Vector, kThreads>(y, vocab);
    }
  }
}

// A warp per row.
__global__ void spread_targets_kernel(Targets targets, std::int64_t count, const double* factor,
                                      float* weights, float* one_hot) {
  const std::int64_t warps = cuda::global_threads() / cuda::kWarp;
  for (std::int64_t n = cuda::global_thread() / cuda::kWarp; n < count; n += warps) {
    const std::int64_t target = targets[n];
    const float weight = targets.counts(target) ? static_cast<float>(*factor) : 0.0F;
    for (std::int64_t v = cuda::lane(); v < targets.vocab; v += cuda::kWarp) {
      one_hot[n * targets.vocab + v] = v == target ? weight : 0.0F;
    }
    if (cuda::lane() == 0) weights[n] = weight;
  }
}

// --- launches

bool aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

template <class T>
struct Tag {
  using Type = T;
};

// f(Tag<Vector>, threads): float4 where each row of x and y begins at 16 bytes, and a small block
// for rows that a large one would not fill.
template <class F>
void for_rows_of(ConstView x, const void* y, F&& f) {
  const std::int64_t vocab = x.size(1);
  const bool wide = vocab % 4 == 0 && x.stride(0) % 4 == 0 && aligned(x.data) && aligned(y);
  const auto with = [&](auto threads) {
    wide ? f(Tag<float4>{}, threads) : f(Tag<float>{}, threads);
  };
  if (vocab <= 2048) {
    with(std::integral_constant<int, 64>{});
  } else {
    with(std::integral_constant<int, 512>{});
  }
}

unsigned grid_for(std::int64_t rows) { return cuda::blocks_for(rows, 1); }

void forward(ConstView logits, ConstView targets, const CrossEntropyOptions& options, View stats,
             View losses, View factor, View loss) {
  loss_factor_cuda(targets, options, {}, factor);
  loss_rows_cuda(logits, targets, options, factor, stats, losses, {});
  store_loss_cuda(losses, factor, loss);
}

void backward(ConstView logits, ConstView targets, const CrossEntropyOptions& options,
              ConstView stats, ConstView dy, View factor, View dlogits) {
  const std::int64_t count = logits.size(0);
  if (logits.numel() == 0) return;
  loss_factor_cuda(targets, options, dy, factor);
  for_rows_of(logits, dlogits.data, [&]<class V>(Tag<V>, auto threads) {
    GPU_LAUNCH((gradient_rows_kernel<V, threads()>), grid_for(count), threads(), 0,
               logits.as<float>(), logits.stride(0), targets_of(targets, logits.size(1), options),
               count, factor.as<double>(), stats.as<double>(), dlogits.as<float>());
  });
}

void spread_targets(ConstView targets, const CrossEntropyOptions& options, View factor,
                    View weights, View one_hot) {
  const std::int64_t count = targets.size(0);
  if (count == 0) return;
  constexpr int kThreads = 256;
  loss_factor_cuda(targets, options, {}, factor);
  GPU_LAUNCH(spread_targets_kernel, cuda::blocks_for(count, kThreads / cuda::kWarp), kThreads, 0,
             targets_of(targets, one_hot.size(1), options), count, factor.as<double>(),
             weights.as<float>(), one_hot.as<float>());
}

}  // namespace

void loss_factor_cuda(ConstView targets, const CrossEntropyOptions& options, ConstView dy,
                      View factor) {
  GPU_LAUNCH(loss_factor_kernel, 1, kScalarThreads, 0, targets_of(targets, 0, options),
             targets.size(0), options.normalizer, dy.as<float>(), factor.as<double>());
}

void loss_rows_cuda(ConstView logits, ConstView targets, const CrossEntropyOptions& options,
                    ConstView factor, View stats, View losses, View dlogits) {
  const std::int64_t count = logits.size(0);
  if (count == 0) return;
  for_rows_of(logits, dlogits.data, [&]<class V>(Tag<V>, auto threads) {
    GPU_LAUNCH((loss_rows_kernel<V, threads()>), grid_for(count), threads(), 0, logits.as<float>(),
               logits.stride(0), targets_of(targets, logits.size(1), options), count,
               factor.as<double>(), stats.as<double>(), losses.as<double>(), dlogits.as<float>());
  });
}

void store_loss_cuda(ConstView losses, ConstView factor, View loss) {
  GPU_LAUNCH(store_loss_kernel, 1, kScalarThreads, 0, losses.as<double>(), losses.size(0),
             factor.as<double>(), loss.as<float>());
}

extern const CrossEntropyKernels cross_entropy_cuda{forward, backward, spread_targets};

}  // namespace duet
