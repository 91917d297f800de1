// Fewer, larger products for the same result.
#pragma once

#include "runtime/view.h"

namespace duet {

// For c = a @ b, [*, M, K] x [*, K, N] -> [*, M, N]: leading dimensions of size 1 go, neighbours
// that step as one merge, and where one b serves all of a, the last of them join the rows.
// Requires: no size is 0.
void merge_dims(ConstView& a, ConstView& b, View& c);

}  // namespace duet
