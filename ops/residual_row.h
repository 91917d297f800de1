// The row that a norm takes on the CPU: of x, or of the residual sum x + delta, which it writes
// first.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/pointwise/pointwise_cpu.h"

namespace duet {

// A null delta: x itself. Else sum, filled, and still in cache for the loops that follow.
template <class T>
const T* residual_row(const T* x, const T* delta, T* sum, std::int64_t width) {
  if (delta == nullptr) return x;
  if constexpr (std::is_same_v<T, float>) {
    add_f32(x, delta, sum, width);
  } else {
    for (std::int64_t j = 0; j < width; ++j) sum[j] = x[j] + delta[j];
  }
  return sum;
}

// Row i of what may be null.
template <class T>
T* row_or_null(T* rows, std::int64_t i, std::int64_t width) {
  return rows != nullptr ? rows + i * width : nullptr;
}

}  // namespace duet
