// The kernels of a pointwise op y = f(x).
#pragma once

#include "runtime/kernel_table.h"
#include "runtime/view.h"

namespace duet {

struct PointwiseKernels {
  void (*forward)(ConstView x, View y);                  // y = f(x)
  void (*backward)(ConstView x, ConstView dy, View dx);  // dx = f'(x) dy
};

}  // namespace duet
