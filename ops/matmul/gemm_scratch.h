// Scratch of the cpu's products. oneDNN wants some for certain shapes and instruction sets; the op
// takes it as a tensor before its kernel runs, so that a plan on meta takes the same.
#pragma once

#include "runtime/tensor.h"

namespace duet {

// u8 [bytes] for MatmulKernels::gemm on these operands, undefined where the device's kernel wants
// none. No data is read.
Tensor gemm_scratch(const ConstView& a, const ConstView& b, const View& c, bool accumulate,
                    Device device);
// The same for MatmulKernels::linear.
Tensor linear_scratch(const ConstView& x, const ConstView& weight, const ConstView& bias,
                      const View& y, Device device);

// `bytes` of scratch, undefined for 0.
Tensor scratch_tensor(std::size_t bytes, Device device);
// The view that a kernel takes; its data is null where there is no scratch.
inline View scratch_view(Tensor& scratch) {
  return scratch.defined() ? scratch.mutable_view() : View{};
}

}  // namespace duet
