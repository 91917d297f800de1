// The first lines of every op: are the inputs there, of one floating dtype, on one device?
#pragma once

#include <initializer_list>

#include "runtime/tensor.h"

namespace duet {

struct NamedInput {
  const char* name;  // as in ops.h
  const Tensor& tensor;
};

// Throws Error(shape) for an undefined input, Error(dtype) unless all are f32 or all are f64 (on
// cuda f32), Error(device) unless all lie on one device. For a legally undefined input (a bias)
// leave it out.
void check_inputs(const char* op, std::initializer_list<NamedInput> inputs);

// Only that each is there and on one device: for ops that move elements of any dtype.
void check_defined(const char* op, std::initializer_list<NamedInput> inputs);

// Of an op that adds `delta` to `x` without broadcasting: that it is there, and like x.
void check_addend(const char* op, const Tensor& x, const Tensor& delta);

}  // namespace duet
