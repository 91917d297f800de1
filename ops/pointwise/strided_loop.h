// The loop under every elementwise CPU kernel: rows of the merged dims of for_each_row, spread over
// threads. Pieces depend on the shape alone, never on the thread count.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/cpu/parallel.h"
#include "runtime/strided.h"

namespace duet {

inline constexpr std::int64_t kPointwiseGrain = 1 << 14;  // elements a thread takes at least

// Calls inner(offsets, n, steps, first): n elements, operand k's at offsets[k] + i * steps[k], and
// `first` the row-major index of the first. Pieces run in any order and on any thread.
template <std::size_t kOperands, class Inner>
void parallel_rows(const Shape& shape, const std::array<Strides, kOperands>& strides,
                   Inner&& inner) {
  using Offsets = std::array<std::int64_t, kOperands>;
  // A tensor is many short rows or one long one: split the outermost dim that is worth splitting.
  int split = -1;
  std::int64_t inside = shape.numel();
  while (split + 1 < shape.ndim() && (split < 0 || shape[split] == 1)) {
    ++split;
    inside = shape[split] > 0 ? inside / shape[split] : 0;
  }
  if (shape.numel() <= 2 * kPointwiseGrain || split < 0) {
    std::int64_t first = 0;
    for_each_row<kOperands>(shape, strides,
                            [&](const Offsets& offsets, std::int64_t n, const Offsets& steps) {
                              inner(offsets, n, steps, first);
                              first += n;
                            });
    return;
  }
  const std::int64_t grain =
      std::max<std::int64_t>(1, kPointwiseGrain / std::max<std::int64_t>(1, inside));
  parallel_for(shape[split], grain, [&](std::int64_t begin, std::int64_t end) {
    Shape piece = shape;
    piece[split] = end - begin;
    std::int64_t first = begin * inside;
    for_each_row<kOperands>(piece, strides,
                            [&](Offsets offsets, std::int64_t n, const Offsets& steps) {
                              for (std::size_t k = 0; k < kOperands; ++k) {
                                offsets[k] += begin * strides[k][split];
                              }
                              inner(offsets, n, steps, first);
                              first += n;
                            });
  });
}

}  // namespace duet
