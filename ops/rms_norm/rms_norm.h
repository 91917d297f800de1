// Kernels of rms_norm. x, y, dy, dx: [N, C] without gaps; weight, dweight: [C].
#pragma once

#include "ops/weight_gradient.h"
#include "runtime/view.h"

namespace duet {

inline RowChunks rms_norm_chunks(std::int64_t rows) { return {rows, 32, 64}; }

struct RmsNormKernels {
  void (*forward)(ConstView x, ConstView weight, double eps, View y);
  // dx and dweight may be null (not asked for); parts: [chunks, C], null with dweight.
  void (*backward)(ConstView x, ConstView weight, ConstView dy, double eps, View dx, View parts,
                   View dweight, bool add_dweight);
};

extern const RmsNormKernels rms_norm_cpu;

}  // namespace duet
