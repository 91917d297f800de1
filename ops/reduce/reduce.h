// Kernels behind sum, and the sum that undoes a broadcast.
#pragma once

#include "runtime/tensor.h"

namespace duet {

struct ReduceKernels {
  // x: [kept..., reduced...] with any strides; y: contiguous, [kept...].
  void (*sum)(ConstView x, View y);
};
extern const ReduceKernels reduce_cpu;

// Adds dy up over the dims in which `shape` was broadcast; dy itself if none were. Outside
// autograd.
Tensor sum_to(const Tensor& dy, const Shape& shape);
// The same by ops that record a graph.
Tensor differentiable_sum_to(const Tensor& dy, const Shape& shape);

}  // namespace duet
