// AdamW and the gradient norm on the GPU: one launch over the pieces of all tensors, whose
// addresses come in a table. Nothing is read on the host; the update looks for itself whether to
// happen.
#include <cmath>
#include <limits>

#include "runtime/cuda/block.cuh"
#include "runtime/cuda/error_flag.h"
#include "runtime/cuda/upload.h"
#include "train/optimizer_kernels.h"

namespace duet {
namespace {

constexpr int kThreads = 256;
constexpr int kNormThreads = 1024;

__device__ bool in_fours(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % sizeof(float4) == 0;
}

__global__ void begin_kernel(double grad_scale, double* step) {
  for (int i = 0; i < kStepScalars; ++i) step[i] = 0;
  step[kStepGradScale] = grad_scale;
  step[kStepFirstBad] = -1;
}

void begin(double grad_scale, View step) {
  GPU_LAUNCH(begin_kernel, 1, 1, 0, grad_scale, step.as<double>());
}

__global__ void add_loss_kernel(const float* loss, double* step) {
  step[kStepLoss] += static_cast<double>(*loss);
}

void add_loss(ConstView loss, View step) {
  GPU_LAUNCH(add_loss_kernel, 1, 1, 0, loss.as<float>(), step.as<double>());
}

// --- AdamW

struct Update {
  float grad_scale, beta1, beta2, rest1, rest2, keep, step_size, v_scale, eps;

  __device__ Update(const AdamWScalars& s, bool decay, double scale)
      : grad_scale(static_cast<float>(scale)),
        beta1(static_cast<float>(s.beta1)),
        beta2(static_cast<float>(s.beta2)),
        rest1(static_cast<float>(1 - s.beta1)),
        rest2(static_cast<float>(1 - s.beta2)),
        keep(decay ? static_cast<float>(s.keep) : 1.0F),
        step_size(static_cast<float>(s.step_size)),
        v_scale(static_cast<float>(s.v_scale)),
        eps(static_cast<float>(s.eps)) {}

  __device__ void operator()(float& w, float gradient, float& m, float& v) const {
    const float g = gradient * grad_scale;
    m = fmaf(beta1, m, rest1 * g);
    v = fmaf(beta2, v, rest2 * (g * g));
    w = w * keep - step_size * m / fmaf(sqrtf(v), v_scale, eps);
  }
  __device__ void operator()(float4& w, float4 g, float4& m, float4& v) const {
    (*this)(w.x, g.x, m.x, v.x);
    (*this)(w.y, g.y, m.y, v.y);
    (*this)(w.z, g.z, m.z, v.z);
    (*this)(w.w, g.w, m.w, v.w);
  }
};

// Elements [begin, size) of a piece, in Vectors.
template <class Vector>
__device__ void update_elements(const AdamWPiece& piece, const Update& update, std::int64_t begin,
                                std::int64_t size) {
  auto* weight = static_cast<Vector*>(piece.weight);
  const auto* gradient = static_cast<const Vector*>(piece.gradient);
  auto* first = static_cast<Vector*>(piece.m);
  auto* second = static_cast<Vector*>(piece.v);
  for (std::int64_t i = begin + threadIdx.x; i < size; i += kThreads) {
    Vector w = weight[i], m = first[i], v = second[i];
    update(w, gradient[i], m, v);
    weight[i] = w;
    first[i] = m;
    second[i] = v;
  }
}

// A block per piece.
__global__ void adamw_kernel(const AdamWScalars* scalars, const AdamWPiece* pieces,
                             const double* step) {
  if (step[kStepSkip] != 0) return;
  const AdamWPiece piece = pieces[blockIdx.x];
  const Update update(*scalars, piece.decay, step[kStepGradScale]);
  std::int64_t begin = 0;
  if (in_fours(piece.weight) && in_fours(piece.gradient) && in_fours(piece.m) &&
      in_fours(piece.v)) {
    update_elements<float4>(piece, update, 0, piece.size / 4);
    begin = piece.size / 4 * 4;
  }
  update_elements<float>(piece, update, begin, piece.size);
}

void adamw(const AdamWCall& call) {
  if (call.pieces.empty()) return;
  auto* table = call.table.as<std::byte>();
  cuda::upload(table, {std::as_bytes(std::span(&call.scalars, 1)), std::as_bytes(call.pieces)});
  GPU_LAUNCH(adamw_kernel, static_cast<unsigned>(call.pieces.size()), kThreads, 0,
             reinterpret_cast<const AdamWScalars*>(table),
             reinterpret_cast<const AdamWPiece*>(table + sizeof(AdamWScalars)),
             call.step.as<double>());
}

// --- the norm

__device__ double square(float x) { return static_cast<double>(x) * static_cast<double>(x); }
__device__ double square(float4 x) {
  return (square(x.x) + square(x.y)) + (square(x.z) + square(x.w));
}

template <class Vector>
__device__ double sum_squares(const void* data, std::int64_t begin, std::int64_t size) {
  const auto* x = static_cast<const Vector*>(data);
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x; i < size; i += kThreads) sum += square(x[i]);
  return sum;
}

// A block per piece. In double: the square of a float may be larger than any float.
__global__ void square_sums_kernel(const ValuePiece* pieces, double* sums) {
  const ValuePiece piece = pieces[blockIdx.x];
  const bool wide = in_fours(piece.data);
  double sum = sum_squares<float>(piece.data, wide ? piece.size / 4 * 4 : 0, piece.size);
  if (wide) sum += sum_squares<float4>(piece.data, 0, piece.size / 4);
  sum = cuda::block_reduce<cuda::Sum, kThreads>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

struct NormLimits {
  double limit, clipped, max_norm;
};
struct Min {
  __device__ std::int64_t operator()(std::int64_t a, std::int64_t b) const { return a < b ? a : b; }
};

// One block, a warp per tensor.
__global__ void finish_norm_kernel(const double* sums, const std::int64_t* first,
                                   std::int64_t tensors, NormLimits limits,
                                   const cuda::BadIndex* bad_index, double* step) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  double total = 0;
  std::int64_t bad = kNone;
  for (std::int64_t i = cuda::warp(); i < tensors; i += kNormThreads / cuda::kWarp) {
    double sum = 0;
    for (std::int64_t p = first[i] + cuda::lane(); p < first[i + 1]; p += cuda::kWarp) {
      sum += sums[p];
    }
    sum = cuda::warp_reduce<cuda::Sum>(sum);
    if (cuda::lane() == 0) total += sum;
    if (bad == kNone && is_bad_square_sum(sum, limits.limit, limits.clipped)) bad = i;
  }
  total = cuda::block_reduce<cuda::Sum, kNormThreads>(total);
  bad = cuda::block_reduce<Min, kNormThreads>(bad);
  if (threadIdx.x != 0) return;
  const double norm = std::sqrt(total), loss = step[kStepLoss];
  step[kStepNorm] = norm;
  step[kStepGradScale] = clip_factor(norm, limits.max_norm);
  step[kStepFirstBad] = bad == kNone ? -1.0 : static_cast<double>(bad);
  // An id out of range ends the run where the flag is read; no weight moves until then.
  const bool goes_on = bad == kNone && loss - loss == 0 && bad_index->source == 0;
  step[kStepSkip] = goes_on ? 0 : 1;
}

void norm(const NormCall& call) {
  auto* table = call.table.as<std::byte>();
  cuda::upload(table, {std::as_bytes(call.pieces), std::as_bytes(call.first)});
  const auto* first = reinterpret_cast<const std::int64_t*>(table + call.pieces.size_bytes());
  if (!call.pieces.empty()) {
    GPU_LAUNCH(square_sums_kernel, static_cast<unsigned>(call.pieces.size()), kThreads, 0,
               reinterpret_cast<const ValuePiece*>(table), call.sums.as<double>());
  }
  GPU_LAUNCH(finish_norm_kernel, 1, kNormThreads, 0, call.sums.as<double>(), first,
             static_cast<std::int64_t>(call.first.size()) - 1,
             (NormLimits{call.limit, call.clipped, call.max_norm}), cuda::bad_index(),
             call.step.as<double>());
}

}  // namespace

extern const OptimizerKernels optimizer_cuda{&begin, &adamw, &norm, &add_loss};

}  // namespace duet
