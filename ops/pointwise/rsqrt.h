// 1 / sqrt(x + eps), for the second derivatives of the norms.
#pragma once

#include "ops/pointwise/pointwise.h"

namespace duet {

struct Rsqrt {
  static constexpr const char* name = "rsqrt";
  static constexpr UnaryF32 vector_f = nullptr;  // one number a row
  static constexpr UnaryGradF32 vector_df = nullptr;

  template <class T>
  DUET_HD static T f(T x) {
    using std::sqrt;
    return T(1) / sqrt(x);
  }
  // -1 / (2 x sqrt(x))
  template <class T>
  DUET_HD static T df(T x) {
    using std::sqrt;
    return T(-0.5) / (x * sqrt(x));
  }
};

inline Tensor rsqrt(const Tensor& x, double eps) {
  return pointwise<Rsqrt>(add(x, Tensor::full({}, eps, x.dtype(), x.device())));
}

// [*, C] -> [*, 1]
inline Tensor row_mean(const Tensor& x) {
  return scale(sum(x, {-1}, /*keepdim=*/true), 1.0 / static_cast<double>(x.size(-1)));
}

}  // namespace duet
