// silu(x) = x sigmoid(x)
#include "ops/ops.h"
#include "ops/pointwise/silu.h"

namespace duet {

Tensor silu(const Tensor& x) { return pointwise<Silu>(x); }

}  // namespace duet
