// The loop under CPU kernels that work row by row: rows spread over threads in pieces that depend
// on the shape alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/cpu/parallel.h"
#include "runtime/shape.h"

namespace duet {

// [*, C] -> [*]: what is left when each row becomes one number.
inline Shape without_last(const Shape& shape) {
  Shape out;
  for (int d = 0; d + 1 < shape.ndim(); ++d) out.push_back(shape[d]);
  return out;
}

// Calls f(i) for each row i of a contiguous [*, C], in pieces of about 16,000 elements. Rows
// without elements are not called for: an op that makes something of them says what.
template <class F>
void for_rows(const Shape& shape, F&& f) {
  if (shape.numel() == 0) return;
  const std::int64_t width = shape.back();
  const std::int64_t grain = std::max<std::int64_t>(1, (1 << 14) / width);
  parallel_for(shape.numel() / width, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) f(i);
  });
}

}  // namespace duet
