// Kernels behind rope() and rope_table() of ops/ops.h. D is even; half = D / 2.
#pragma once

#include <cstdint>

#include "runtime/tensor.h"
#include "runtime/view.h"

namespace duet {

struct RopeKernels {
  // table[t][0][i] = cos(t * theta^(-2i/D)), table[t][1][i] = sin(...): [length, 2, half].
  void (*table)(double theta, View table);
  // y = x rotated by the table's rows from `position` on, or back by the same angles (inverse).
  // x [B, T, H, D] of any strides, y the same shape, contiguous; y may be x.
  void (*rotate)(ConstView x, ConstView table, std::int64_t position, bool inverse, View y);
};

extern const RopeKernels rope_cpu;
extern const RopeKernels rope_cuda;

// For ops that rotate what they compute (the couplings). Throws what rope(x, table, position)
// throws, naming `op`.
void check_rotation(const char* op, const Tensor& x, const Tensor& table, std::int64_t position);
// x rotated by the table's rows from `position` on, or back by them (inverse), without a graph:
// [B, T, H, D] of any strides -> the same, contiguous.
Tensor rotated(const Tensor& x, const Tensor& table, std::int64_t position, bool inverse);
// The same in x itself, which is contiguous.
void rotate_in_place(Tensor& x, const Tensor& table, std::int64_t position);

}  // namespace duet
