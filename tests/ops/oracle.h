// For oracles: the elements of contiguous f64 tensors as vectors, and back.
#pragma once

#include <functional>
#include <vector>

#include "tests/ops/op_case.h"

namespace duet::test {

using Values = std::vector<double>;

inline Values elements(const Tensor& t) { return {t.data<double>(), t.data<double>() + t.numel()}; }

inline Tensor tensor_of(const Shape& shape, const Values& values) {
  Tensor t = Tensor::empty(shape, DType::f64);
  std::copy(values.begin(), values.end(), t.mutable_data<double>());
  return t;
}

// The multi-index of row-major element `flat`.
inline Dims index_of(const Shape& shape, std::int64_t flat) {
  Dims index = Dims::filled(shape.ndim(), 0);
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return index;
}

// Row-major position of `index` in `shape`, counting dims from the right; sizes of 1 broadcast.
inline std::size_t position(const Shape& shape, const Dims& index) {
  std::int64_t flat = 0;
  for (int d = 0; d < shape.ndim(); ++d) {
    const std::int64_t i = index[d + index.ndim() - shape.ndim()];
    flat = flat * shape[d] + (shape[d] == 1 ? 0 : i);
  }
  return static_cast<std::size_t>(flat);
}

}  // namespace duet::test
