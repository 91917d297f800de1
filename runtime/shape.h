// Shape and Strides: up to 8 dimensions, stored in place, no heap.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>

#include "runtime/error.h"

namespace duet {

inline constexpr int kMaxDims = 8;

// A short list of int64_t: the sizes of a tensor, or its strides (both in elements).
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> dims) {
    for (const std::int64_t d : dims) push_back(d);
  }
  static Dims filled(int ndim, std::int64_t value) {
    Dims dims;
    for (int i = 0; i < ndim; ++i) dims.push_back(value);
    return dims;
  }

  constexpr int ndim() const { return ndim_; }
  bool empty() const { return ndim_ == 0; }
  constexpr std::int64_t operator[](int i) const { return dims_[static_cast<std::size_t>(i)]; }
  constexpr std::int64_t& operator[](int i) { return dims_[static_cast<std::size_t>(i)]; }
  constexpr std::int64_t back() const { return (*this)[ndim_ - 1]; }
  const std::int64_t* data() const { return dims_.data(); }
  const std::int64_t* begin() const { return dims_.data(); }
  const std::int64_t* end() const { return dims_.data() + ndim_; }

  void push_back(std::int64_t d) {
    check(ndim_ < kMaxDims, ErrorKind::shape, "shape: more than ", kMaxDims,
          " dimensions; reshape to fewer");
    dims_[static_cast<std::size_t>(ndim_++)] = d;
  }

  // Number of elements: the product of the sizes, 1 for no dimensions.
  std::int64_t numel() const {
    std::int64_t n = 1;
    for (const std::int64_t d : *this) n *= d;
    return n;
  }

  friend bool operator==(const Dims&, const Dims&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Dims& d) {
    out << '[';
    for (int i = 0; i < d.ndim_; ++i) out << (i ? ", " : "") << d[i];
    return out << ']';
  }

 private:
  std::array<std::int64_t, kMaxDims> dims_{};  // zeros from ndim_ on
  int ndim_ = 0;
};

using Shape = Dims;
using Strides = Dims;

// Strides of a row-major tensor without gaps.
inline Strides contiguous_strides(const Shape& shape) {
  Strides strides = Dims::filled(shape.ndim(), 1);
  for (int i = shape.ndim() - 2; i >= 0; --i) strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

// Maps dim in [-ndim, ndim) to [0, ndim). Throws Error(index) naming the op that asked.
inline int normalize_dim(int dim, int ndim, const char* op) {
  check(-ndim <= dim && dim < ndim, ErrorKind::index, op, ": dim ", dim, " is out of range for a ",
        ndim, "-d tensor (valid: ", -ndim, "..", ndim - 1, ")");
  return dim < 0 ? dim + ndim : dim;
}

// The shape two operands broadcast to (NumPy's rule: align right; sizes equal, or one of them 1).
// Throws Error(shape) naming the op and both shapes.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op);

}  // namespace duet
