#include "runtime/shape.h"

#include <algorithm>

namespace duet {

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op) {
  const int ndim = std::max(a.ndim(), b.ndim());
  Shape out = Dims::filled(ndim, 1);
  for (int i = 1; i <= ndim; ++i) {
    const std::int64_t da = i <= a.ndim() ? a[a.ndim() - i] : 1;
    const std::int64_t db = i <= b.ndim() ? b[b.ndim() - i] : 1;
    check(da == db || da == 1 || db == 1, ErrorKind::shape, op, ": shapes do not broadcast: got ",
          a, " and ", b, ", expected equal sizes or 1 in dim -", i, " (", da, " against ", db, ")");
    out[ndim - i] = da == 1 ? db : da;
  }
  return out;
}

}  // namespace duet
