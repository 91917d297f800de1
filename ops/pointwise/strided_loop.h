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
  if (shape.numel() == 0) return;
  // The outermost dim whose slices have at most a grain of elements is cut; dims left of it (many
  // pieces each) are counted out, dims right of it stay whole.
  int cut = -1;
  std::int64_t outer = 1, inside = shape.numel();
  while (cut + 1 < shape.ndim() && inside > kPointwiseGrain) {
    if (++cut > 0) outer *= shape[cut - 1];
    inside /= shape[cut];
  }
  if (cut < 0) {
    std::int64_t first = 0;
    for_each_row<kOperands>(shape, strides,
                            [&](const Offsets& offsets, std::int64_t n, const Offsets& steps) {
                              inner(offsets, n, steps, first);
                              first += n;
                            });
    return;
  }
  const std::int64_t per_piece = kPointwiseGrain / inside;
  const std::int64_t pieces = (shape[cut] + per_piece - 1) / per_piece;
  parallel_chunks(outer * pieces, [&](std::int64_t chunk) {
    const std::int64_t begin = chunk % pieces * per_piece;
    Shape piece = shape;
    piece[cut] = std::min(per_piece, shape[cut] - begin);
    Offsets base;
    for (std::size_t k = 0; k < kOperands; ++k) base[k] = begin * strides[k][cut];
    std::int64_t rest = chunk / pieces;
    for (int d = cut - 1; d >= 0; --d) {
      piece[d] = 1;
      for (std::size_t k = 0; k < kOperands; ++k) base[k] += rest % shape[d] * strides[k][d];
      rest /= shape[d];
    }
    std::int64_t first = (chunk / pieces * shape[cut] + begin) * inside;
    for_each_row<kOperands>(piece, strides,
                            [&](Offsets offsets, std::int64_t n, const Offsets& steps) {
                              for (std::size_t k = 0; k < kOperands; ++k) offsets[k] += base[k];
                              inner(offsets, n, steps, first);
                              first += n;
                            });
  });
}

}  // namespace duet
