// Kernels of diff_combine. a1, a2, dy: [B, T, H, D] of any strides but a last one of 1; lambda:
// [B, T, H] of any strides (0 for one that all share).
#pragma once

#include "runtime/view.h"

namespace duet {

struct DiffCombineKernels {
  // y: [B, T, H, D] without gaps
  void (*forward)(ConstView a1, ConstView a2, ConstView lambda, View y);
  // da2: [B, T, H, D] without gaps, or null; row_dots: [B, T, H], or null: -<dy, a2> of each row
  void (*backward)(ConstView a2, ConstView lambda, ConstView dy, View da2, View row_dots);
};

extern const DiffCombineKernels diff_combine_cpu;
extern const DiffCombineKernels diff_combine_cuda;

}  // namespace duet
