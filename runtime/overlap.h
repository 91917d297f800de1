// Which elements of windows on one storage share bytes: asked by everything that writes.
#pragma once

#include "runtime/tensor.h"

namespace duet {

// False only if no two elements can lie in one place: every dimension steps over all that those
// with shorter steps reach. So are the windows that slices, transposes and reshapes make.
bool overlaps_itself(const Shape& shape, const Strides& strides);

// Throws Error(shape), naming the op, unless `out` can be written element by element from `x`: they
// are the same window, or their bytes lie apart.
void check_apart(const char* op, const Tensor& out, const Tensor& x);

// Whether both are the same elements in the same order.
bool is_same_window(const Tensor& a, const Tensor& b);

}  // namespace duet
