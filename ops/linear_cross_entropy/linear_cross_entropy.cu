// CUDA kernels of linear_cross_entropy. A chunk of logits is made by a product, turned into its own
// gradient in place while each row's loss is noted, and used up by the products for dx and dW.
#include <algorithm>

#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/matmul/matmul_kernels.h"
#include "runtime/cuda/block.cuh"

namespace duet {
namespace {

// Rows [begin, begin + n) of a matrix or a vector.
template <class AnyView>
AnyView rows_of(AnyView x, std::int64_t begin, std::int64_t n) {
  const std::int64_t bytes = begin * x.stride(0) * static_cast<std::int64_t>(size_of(x.dtype));
  if constexpr (std::is_same_v<AnyView, View>) {
    x.data = static_cast<std::byte*>(x.data) + bytes;
  } else {
    x.data = static_cast<const std::byte*>(x.data) + bytes;
  }
  x.shape[0] = n;
  return x;
}

void run(const LinearCrossEntropyCall& call) {
  const auto gemm = matmul_cuda.gemm;
  const std::int64_t count = call.x.size(0);
  const bool dx = call.dx.data != nullptr, dweight = call.dweight.data != nullptr;
  loss_factor_cuda(call.targets, call.options, {}, call.factor);
  for (std::int64_t begin = 0; begin < count; begin += call.logits.size(0)) {
    const std::int64_t rows = std::min(call.logits.size(0), count - begin);
    const ConstView x = rows_of(call.x, begin, rows);
    const View logits = rows_of(call.logits, 0, rows);
    gemm(x, transposed(call.weight), logits, false, {});
    loss_rows_cuda(logits, rows_of(call.targets, begin, rows), call.options, call.factor, View{},
                   rows_of(call.losses, begin, rows), dx || dweight ? logits : View{});
    if (dx) gemm(logits, call.weight, rows_of(call.dx, begin, rows), false, {});
    if (dweight) gemm(transposed(logits), x, call.dweight, begin > 0, {});
  }
  // Without rows, a product over none of them: zeros.
  if (dweight && count == 0) gemm(transposed(call.logits), call.x, call.dweight, false, {});
  store_loss_cuda(call.losses, call.factor, call.loss);
}

constexpr int kThreads = 256;

__device__ float scaled(float g, float factor) { return g * factor; }
__device__ float4 scaled(float4 g, float factor) {
  return {g.x * factor, g.y * factor, g.z * factor, g.w * factor};
}
__device__ float sum(float a, float b) { return a + b; }
__device__ float4 sum(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

template <class Vector>
__global__ void scale_kernel(const float* dy, Vector* gradient, std::int64_t n) {
  const float factor = *dy;
  if (factor == 1.0F) return;
  for (std::int64_t i = cuda::global_thread(); i < n; i += cuda::global_threads()) {
    gradient[i] = scaled(gradient[i], factor);
  }
}

template <class Vector>
__global__ void add_scaled_kernel(const float* dy, const Vector* gradient, Vector* out,
                                  std::int64_t n) {
  const float factor = *dy;
  for (std::int64_t i = cuda::global_thread(); i < n; i += cuda::global_threads()) {
    out[i] = sum(out[i], scaled(gradient[i], factor));
  }
}

bool aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

void scale_gradient(ConstView dy, View gradient) {
  const std::int64_t n = gradient.numel();
  if (n == 0) return;
  if (n % 4 == 0 && aligned(gradient.data)) {
    GPU_LAUNCH(scale_kernel<float4>, cuda::blocks_for(n / 4, kThreads), kThreads, 0, dy.as<float>(),
               gradient.as<float4>(), n / 4);
  } else {
    GPU_LAUNCH(scale_kernel<float>, cuda::blocks_for(n, kThreads), kThreads, 0, dy.as<float>(),
               gradient.as<float>(), n);
  }
}

void add_scaled(ConstView dy, ConstView gradient, View out) {
  const std::int64_t n = gradient.numel();
  if (n == 0) return;
  if (n % 4 == 0 && aligned(gradient.data) && aligned(out.data)) {
    GPU_LAUNCH(add_scaled_kernel<float4>, cuda::blocks_for(n / 4, kThreads), kThreads, 0,
               dy.as<float>(), gradient.as<float4>(), out.as<float4>(), n / 4);
  } else {
    GPU_LAUNCH(add_scaled_kernel<float>, cuda::blocks_for(n, kThreads), kThreads, 0, dy.as<float>(),
               gradient.as<float>(), out.as<float>(), n);
  }
}

}  // namespace

extern const LinearCrossEntropyKernels linear_cross_entropy_cuda{run, scale_gradient, add_scaled};

}  // namespace duet
