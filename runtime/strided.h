// Walking strided views: dimensions that lie back to back are merged, then the last one is the
// inner loop. Serves the plain loops of every elementwise CPU kernel.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/shape.h"

namespace duet {

// The same elements in the same order with the fewest dims: dims of one element are dropped, and
// dim i joins dim i-1 where every operand steps through both as one.
template <std::size_t kOperands>
struct MergedDims {
  Shape sizes;
  std::array<Strides, kOperands> steps;
};

template <std::size_t kOperands>
MergedDims<kOperands> merge_dims(const Shape& shape,
                                 const std::array<Strides, kOperands>& strides) {
  MergedDims<kOperands> merged;
  auto& [sizes, steps] = merged;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (shape[d] == 1) continue;
    const int last = sizes.ndim() - 1;
    bool merges = last >= 0;
    for (std::size_t k = 0; merges && k < kOperands; ++k) {
      merges = steps[k][last] == strides[k][d] * shape[d];
    }
    if (merges) {
      sizes[last] *= shape[d];
      for (std::size_t k = 0; k < kOperands; ++k) steps[k][last] = strides[k][d];
    } else {
      sizes.push_back(shape[d]);
      for (std::size_t k = 0; k < kOperands; ++k) steps[k].push_back(strides[k][d]);
    }
  }
  return merged;
}

// Calls inner(offsets, n, inner_strides) for each innermost row of `shape`, where offsets[k] and
// inner_strides[k] are the element offset and stride of operand k.
template <std::size_t kOperands, class Inner>
void for_each_row(const Shape& shape, const std::array<Strides, kOperands>& strides,
                  Inner&& inner) {
  if (shape.numel() == 0) return;
  const MergedDims<kOperands> merged = merge_dims<kOperands>(shape, strides);
  const Shape& sizes = merged.sizes;
  const std::array<Strides, kOperands>& steps = merged.steps;
  std::array<std::int64_t, kOperands> offsets{};
  std::array<std::int64_t, kOperands> inner_strides{};
  const int outer = sizes.ndim() - 1;
  const std::int64_t n = outer >= 0 ? sizes[outer] : 1;
  if (outer >= 0) {
    for (std::size_t k = 0; k < kOperands; ++k) inner_strides[k] = steps[k][outer];
  }
  Dims index = Dims::filled(outer > 0 ? outer : 0, 0);
  while (true) {
    inner(offsets, n, inner_strides);
    int d = outer - 1;
    for (; d >= 0; --d) {
      for (std::size_t k = 0; k < kOperands; ++k) offsets[k] += steps[k][d];
      if (++index[d] < sizes[d]) break;
      for (std::size_t k = 0; k < kOperands; ++k) offsets[k] -= steps[k][d] * sizes[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace duet
