// Strided inputs of kernels that work row by row.
#pragma once

#include "runtime/memory_ops.h"

namespace duet {

// The tensor itself if its last stride is 1 (or it is undefined), else a copy without gaps.
inline Tensor with_whole_rows(const Tensor& t) {
  return !t.defined() || t.size(-1) <= 1 || t.stride(-1) == 1 ? t : clone(t);
}

}  // namespace duet
