// View: the plain description of a tensor that kernels receive. Copied by value into a launch,
// where nvcc takes what is constexpr.
#pragma once

#include "runtime/dtype.h"
#include "runtime/shape.h"

namespace duet {

// A readable window: element (i0, i1, ...) lies at data + sum_d i_d * strides[d] elements.
struct ConstView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  Strides strides;

  template <class T>
  constexpr const T* as() const {
    return static_cast<const T*>(data);
  }
  constexpr int ndim() const { return shape.ndim(); }
  constexpr std::int64_t size(int dim) const { return shape[dim < 0 ? dim + shape.ndim() : dim]; }
  constexpr std::int64_t stride(int dim) const {
    return strides[dim < 0 ? dim + shape.ndim() : dim];
  }
  std::int64_t numel() const { return shape.numel(); }
};

// The same, writable.
struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  Strides strides;

  template <class T>
  constexpr T* as() const {
    return static_cast<T*>(data);
  }
  constexpr int ndim() const { return shape.ndim(); }
  constexpr std::int64_t size(int dim) const { return shape[dim < 0 ? dim + shape.ndim() : dim]; }
  constexpr std::int64_t stride(int dim) const {
    return strides[dim < 0 ? dim + shape.ndim() : dim];
  }
  std::int64_t numel() const { return shape.numel(); }
  // NOLINTNEXTLINE(google-explicit-constructor): every View is readable
  operator ConstView() const { return {data, dtype, shape, strides}; }
};

}  // namespace duet
