// A NaN to be shown: the sign that it carries says nothing. The one a processor makes has it set,
// so that a text would speak of "-nan".
#pragma once

#include <limits>

namespace duet {

constexpr double without_nan_sign(double x) {
  return x == x ? x : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace duet
