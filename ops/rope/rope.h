// Kernels behind rope() and rope_table() of ops/ops.h. D is even; half = D / 2.
#pragma once

#include <cstdint>

#include "runtime/view.h"

namespace duet {

struct RopeKernels {
  // table[t][0][i] = cos(t * theta^(-2i/D)), table[t][1][i] = sin(...): [length, 2, half].
  void (*table)(double theta, View table);
  // y = x rotated by the table's rows from `position` on, or back by the same angles (inverse).
  // x [B, T, H, D] of any strides, y the same shape, contiguous.
  void (*rotate)(ConstView x, ConstView table, std::int64_t position, bool inverse, View y);
};

extern const RopeKernels rope_cpu;
extern const RopeKernels rope_cuda;

}  // namespace duet
