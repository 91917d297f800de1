// The few kernels that everything below ops needs: fill, copy, accumulate. Not differentiable. And
// the way of a tensor from one device to another.
#pragma once

#include "runtime/tensor.h"

namespace duet {

// Every element of `out` becomes `value`, converted to its dtype.
void fill(Tensor& out, double value);

// out = x, converting the dtype; any strides, any devices (a copy on the way where the bytes do not
// lie alike). Throws Error(shape) unless the shapes are equal, or if the two overlap.
void copy(Tensor& out, const Tensor& x);

// out += x; f32 or f64, same dtype, same shape, any strides; x is `out`, or lies apart from it.
void accumulate(Tensor& out, const Tensor& x);

// A contiguous copy with its own storage, outside autograd.
Tensor clone(const Tensor& x);
// x itself when it is contiguous, else clone(x).
Tensor contiguous_copy(const Tensor& x);

// x on `device`, contiguous, outside autograd: x itself where it is so already, else a copy. On
// meta a tensor has no values to bring back: throws Error(device).
Tensor to_device(const Tensor& x, Device device);

// Returns when the device has done all it was given. An error of an earlier kernel is thrown here.
void synchronize(Device device);

}  // namespace duet
