// The cpu's matrix products, for kernels of the cpu that need one.
#pragma once

#include "ops/matmul/matmul_kernels.h"

namespace duet {

// MatmulKernels::gemm.
void gemm_cpu(ConstView a, ConstView b, View c, bool accumulate, View scratch);
// Bytes of scratch that gemm_cpu wants. No data is read.
std::size_t gemm_cpu_scratch(ConstView a, ConstView b, View c, bool accumulate);
// The same for MatmulKernels::linear.
std::size_t linear_cpu_scratch(const ConstView& x, const ConstView& weight, const ConstView& bias,
                               const View& y);

}  // namespace duet
