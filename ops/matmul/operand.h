// Tensors as the operands of one matrix product: views where strides allow it, copies elsewhere.
#pragma once

#include "runtime/tensor.h"

namespace duet {

// x as a matrix [N, C], N the product of all but the last dimension; a copy if the leading
// dimensions do not step as one.
Tensor as_rows(const Tensor& x);

// x, or a contiguous copy if a product cannot read it as it lies: one of the last two dimensions
// must have stride 1. f64 takes any strides.
Tensor as_gemm_operand(const Tensor& x);

// Where a gradient goes: the leaf's buffer, to add to, if one is offered and a product can write
// there, else a new tensor. Return `out` from backward in both cases.
struct GradTarget {
  Tensor out;
  bool accumulate = false;

  GradTarget(const Tensor& accumulator, const Shape& shape, const Tensor& like);
};

}  // namespace duet
