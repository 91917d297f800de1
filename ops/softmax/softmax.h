// Kernels of softmax. x, y, dy, dx: [N, C] without gaps.
#pragma once

#include "runtime/view.h"

namespace duet {

struct SoftmaxKernels {
  void (*forward)(ConstView x, View y);
  void (*backward)(ConstView y, ConstView dy, View dx);
};

extern const SoftmaxKernels softmax_cpu;
extern const SoftmaxKernels softmax_cuda;

}  // namespace duet
