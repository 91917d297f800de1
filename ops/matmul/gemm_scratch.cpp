#include "ops/matmul/gemm_scratch.h"

#include "ops/matmul/matmul_cpu.h"

namespace duet {

Tensor scratch_tensor(std::size_t bytes, Device device) {
  if (bytes == 0) return {};
  return Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::u8, device);
}

Tensor gemm_scratch(const ConstView& a, const ConstView& b, const View& c, bool accumulate,
                    Device device) {
  if (device.kernels() != DeviceType::cpu) return {};
  return scratch_tensor(gemm_cpu_scratch(a, b, c, accumulate), device);
}

Tensor linear_scratch(const ConstView& x, const ConstView& weight, const ConstView& bias,
                      const View& y, Device device) {
  if (device.kernels() != DeviceType::cpu) return {};
  return scratch_tensor(linear_cpu_scratch(x, weight, bias, y), device);
}

}  // namespace duet
