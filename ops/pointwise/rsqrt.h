// Parts of the norms' second derivatives.
#pragma once

#include "ops/ops.h"

namespace duet {

// 1 / sqrt(x + eps)
Tensor rsqrt(const Tensor& x, double eps);

// [*, C] -> [*, 1]
inline Tensor row_mean(const Tensor& x) {
  return scale(sum(x, {-1}, /*keepdim=*/true), 1.0 / static_cast<double>(x.size(-1)));
}

}  // namespace duet
