// Kernels behind runtime/memory_ops.h. Shapes of x and out are equal; strides are arbitrary.
#pragma once

#include "runtime/view.h"

namespace duet {

struct MemoryOpsKernels {
  void (*fill)(View out, double value);
  void (*copy)(ConstView x, View out);
  void (*accumulate)(ConstView x, View out);
};

extern const MemoryOpsKernels memory_ops_cpu;
extern const MemoryOpsKernels memory_ops_cuda;

}  // namespace duet
