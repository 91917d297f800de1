// Matrix products on the GPU: cublasLt's, and what it has no call for.
#include "ops/matmul/matmul_kernels.h"
#include "ops/matmul/merge_dims.h"
#include "ops/pointwise/gelu_tanh.h"
#include "runtime/cuda/block.cuh"
#include "runtime/cuda/cublaslt.h"

namespace duet {
namespace {

constexpr int kThreads = 256;

// c[..., j] = bias[j], or 0 without bias.
__global__ void constant_rows_kernel(View c, std::int64_t n, const float* bias) {
  for (std::int64_t i = cuda::global_thread(); i < n; i += cuda::global_threads()) {
    std::int64_t rest = i, offset = 0;
    for (int d = c.ndim() - 1; d >= 0; --d) {
      offset += rest % c.shape[d] * c.strides[d];
      rest /= c.shape[d];
    }
    c.as<float>()[offset] = bias != nullptr ? bias[i % c.size(-1)] : 0.0F;
  }
}

void constant_rows(const View& c, const float* bias) {
  const std::int64_t n = c.numel();
  GPU_LAUNCH(constant_rows_kernel, cuda::blocks_for(n, kThreads), kThreads, 0, c, n, bias);
}

// --- Sums over rows. A block sums 8 columns, so that a warp reads four rows of 32 whole bytes; its
// threads share the rows, and their sums meet over a fixed tree.

constexpr int kColumns = 8;
constexpr std::int64_t kRun = 64;  // rows that a thread sums in float before the sum goes to double

// out[c] = or += sum_r x[r, c]; kLanes threads per column
template <int kLanes>
__global__ void column_sum_kernel(ConstView x, View out, bool accumulate) {
  GPU_SHARED(double, part, [kLanes][kColumns]);
  const std::int64_t rows = x.size(0);
  const std::int64_t columns = x.size(1);
  const int column = static_cast<int>(threadIdx.x) % kColumns;
  const int lane = static_cast<int>(threadIdx.x) / kColumns;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kColumns + column;
  double total = 0;
  if (c < columns) {
    const float* const p = x.as<float>() + c * x.stride(1);
    for (std::int64_t begin = lane; begin < rows; begin += kRun * kLanes) {
      const std::int64_t end = begin + kRun * kLanes < rows ? begin + kRun * kLanes : rows;
      float sum = 0;
      for (std::int64_t r = begin; r < end; r += kLanes) sum += p[r * x.stride(0)];
      total += static_cast<double>(sum);
    }
  }
  part[lane][column] = total;
  __syncthreads();
  for (int half = kLanes / 2; half > 0; half /= 2) {
    if (lane < half) part[lane][column] += part[lane + half][column];
    __syncthreads();
  }
  if (lane == 0 && c < columns) {
    float& o = out.as<float>()[c * out.stride(0)];
    const double sum = part[0][column];
    o = static_cast<float>(accumulate ? static_cast<double>(o) + sum : sum);
  }
}

void column_sum(ConstView x, View out, bool accumulate) {
  const std::int64_t columns = x.size(1);
  if (columns == 0) return;
  const auto blocks = static_cast<unsigned>((columns + kColumns - 1) / kColumns);
  if (x.size(0) > 4096) {
    GPU_LAUNCH(column_sum_kernel<128>, blocks, 128 * kColumns, 0, x, out, accumulate);
  } else {
    GPU_LAUNCH(column_sum_kernel<16>, blocks, 16 * kColumns, 0, x, out, accumulate);
  }
}

// --- Products.

template <class AnyView>
AnyView without_dim(const AnyView& x, int dim, std::int64_t index) {
  AnyView part{x.template as<float>() + index * x.strides[dim], x.dtype, {}, {}};
  for (int d = 0; d < x.ndim(); ++d) {
    if (d == dim) continue;
    part.shape.push_back(x.shape[d]);
    part.strides.push_back(x.strides[d]);
  }
  return part;
}

// At most one leading dimension is a batch of cublasLt's, the longest; the host walks the others.
void batched(const ConstView& a, const ConstView& b, const View& c, bool accumulate) {
  if (c.ndim() <= 3) return cuda::gemm(a, b, c, {.accumulate = accumulate});
  int shortest = 0;
  for (int d = 1; d + 2 < c.ndim(); ++d) {
    if (c.shape[d] < c.shape[shortest]) shortest = d;
  }
  for (std::int64_t i = 0; i < c.shape[shortest]; ++i) {
    batched(without_dim(a, shortest, i), without_dim(b, shortest, i), without_dim(c, shortest, i),
            accumulate);
  }
}

// cublasLt has a work space of its own, so no kernel here is given scratch.
void gemm(ConstView a, ConstView b, View c, bool accumulate, View /*scratch*/) {
  if (c.numel() == 0) return;
  if (a.size(-1) == 0) {
    if (!accumulate) constant_rows(c, nullptr);
    return;
  }
  merge_dims(a, b, c);
  batched(a, b, c, accumulate);
}

void linear(ConstView x, ConstView weight, ConstView bias, View y, View /*scratch*/) {
  if (y.numel() == 0) return;
  if (x.size(1) == 0) return constant_rows(y, bias.as<float>());
  const ConstView wt = transposed(weight);
  // cublasLt reads a bias in vectors of 16 bytes.
  if (reinterpret_cast<std::uintptr_t>(bias.data) % 16 == 0) {
    return cuda::gemm(x, wt, y, {.accumulate = false, .bias = bias.as<float>()});
  }
  constant_rows(y, bias.as<float>());
  cuda::gemm(x, wt, y, {.accumulate = true});
}

void weight_gradient(ConstView dy, ConstView x, View dw, View db, bool accumulate_dw,
                     bool accumulate_db, View /*scratch*/) {
  const bool both = dw.data != nullptr && db.data != nullptr && dw.numel() > 0 && dy.size(0) > 0;
  // The sum of dy over rows comes with the product that reads all of dy, but is never added.
  if (both && !accumulate_db &&
      cuda::try_gemm(transposed(dy), x, dw,
                     {.accumulate = accumulate_dw, .row_sums = db.as<float>()})) {
    return;
  }
  if (dw.data != nullptr) gemm(transposed(dy), x, dw, accumulate_dw, {});
  if (db.data != nullptr) column_sum(dy, db, accumulate_db);
}

void linear_gelu_tanh(ConstView x, ConstView weight, ConstView bias, View h, View y,
                      View /*scratch*/) {
  const bool whole = y.numel() > 0 && x.size(1) > 0;
  if (whole && cuda::try_gemm(x, transposed(weight), y,
                              {.bias = bias.as<float>(), .gelu_input = h.as<float>()})) {
    return;
  }
  linear(x, weight, bias, h, {});
  gelu_tanh_kernels().cuda->forward(h, y);
}

}  // namespace

const MatmulKernels matmul_cuda{gemm, linear, weight_gradient, linear_gelu_tanh};

}  // namespace duet
