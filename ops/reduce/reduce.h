// Kernels behind sum, and the sum that undoes a broadcast.
#pragma once

#include <algorithm>

#include "runtime/tensor.h"

namespace duet {

struct ReduceKernels {
  // x: [kept..., reduced...] with any strides; y: contiguous, [kept...]; parts: f64 scratch,
  // [numel of y, count of parts], null where there is one part.
  void (*sum)(ConstView x, View y, View parts);
};
extern const ReduceKernels reduce_cpu;
extern const ReduceKernels reduce_cuda;

// Outputs that lie side by side in x: neighbouring threads take neighbouring outputs.
inline bool adds_columns(const ConstView& x, int kept) {
  return kept > 0 && x.size(kept - 1) > 1 && x.stride(kept - 1) == 1;
}

// In how many parts a GPU adds up each output, so that enough blocks are at work: by the shape and
// the strides alone. The CPU takes one.
inline std::int64_t cuda_sum_parts(const ConstView& x, int kept) {
  constexpr std::int64_t kBlocks = 1024;
  std::int64_t outputs = 1, n = 1;
  for (int d = 0; d < x.ndim(); ++d) (d < kept ? outputs : n) *= x.size(d);
  const bool columns = adds_columns(x, kept);
  const std::int64_t blocks = std::max<std::int64_t>(1, columns ? outputs / 32 : outputs);
  const std::int64_t shortest = columns ? 128 : 4096;  // elements of one output in a part
  return std::clamp<std::int64_t>(n / shortest, 1, (kBlocks + blocks - 1) / blocks);
}

// Adds dy up over the dims in which `shape` was broadcast; dy itself if none were. Outside
// autograd.
Tensor sum_to(const Tensor& dy, const Shape& shape);
// The same by ops that record a graph.
Tensor differentiable_sum_to(const Tensor& dy, const Shape& shape);

}  // namespace duet
