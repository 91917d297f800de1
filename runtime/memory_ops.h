// The few kernels that everything below ops needs: fill, copy, accumulate. Not differentiable.
#pragma once

#include "runtime/tensor.h"

namespace duet {

// Every element of `out` becomes `value`, converted to its dtype.
void fill(Tensor& out, double value);

// out = x, converting the dtype; any strides. Throws Error(shape) unless the shapes are equal, or
// if the two share storage.
void copy(Tensor& out, const Tensor& x);

// out += x; f32 or f64, same dtype, same shape, any strides of x.
void accumulate(Tensor& out, const Tensor& x);

// A contiguous copy with its own storage, outside autograd.
Tensor clone(const Tensor& x);
// x itself when it is contiguous, else clone(x).
Tensor contiguous_copy(const Tensor& x);

}  // namespace duet
