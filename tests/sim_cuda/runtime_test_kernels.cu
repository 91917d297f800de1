// The kernel of runtime_test_kernels.h.
#include "tests/sim_cuda/device.h"
#include "tests/sim_cuda/runtime_test_kernels.h"

namespace sim {
namespace {

__global__ void twice_kernel(FloatView x, float* y) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < x.size) y[i] = 2 * x.data[i];
}

}  // namespace

void launch_twice(cudaStream_t stream, FloatView x, float* y) {
  constexpr unsigned kThreads = 128;
  const auto blocks = static_cast<unsigned>((x.size + kThreads - 1) / kThreads);
  GPU_RUN_KERNEL_(twice_kernel, blocks, kThreads, 0, stream, x, y);
}

}  // namespace sim
