// Matrix products in f64: oneDNN has none. Blocked loops over any strides.
#pragma once

#include "runtime/view.h"

namespace duet {

// c = or += a @ b: [*, M, K] x [*, K, N] -> [*, M, N], the same number of dimensions in all; a
// leading stride 0 broadcasts. The order of every sum depends on the sizes only.
void gemm_f64(ConstView a, ConstView b, View c, bool accumulate);

}  // namespace duet
