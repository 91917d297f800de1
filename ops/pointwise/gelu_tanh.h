// gelu_tanh's parts, for an op that contains it.
#pragma once

#include "ops/pointwise/pointwise_kernels.h"
#include "runtime/tensor.h"

namespace duet {

const KernelTable<PointwiseKernels>& gelu_tanh_kernels();

// gelu_tanh'(x) dy, an op with gradients of its own.
Tensor gelu_tanh_gradient(const Tensor& x, const Tensor& dy);

}  // namespace duet
