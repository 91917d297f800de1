// The cpu's matrix products, for kernels of the cpu that need one.
#pragma once

#include "ops/matmul/matmul_kernels.h"

namespace duet {

// MatmulKernels::gemm.
void gemm_cpu(ConstView a, ConstView b, View c, bool accumulate);

}  // namespace duet
