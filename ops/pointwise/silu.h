// The scalar functions of silu; swiglu uses them too.
#pragma once

#include "ops/pointwise/pointwise.h"

namespace duet {

struct Silu {
  static constexpr const char* name = "silu";
  static constexpr UnaryF32 vector_f = silu_f32;
  static constexpr UnaryGradF32 vector_df = silu_grad_f32;
  // Beyond the limit sigmoid is 0 (or 1) in either type.
  static constexpr double kLimit = 800;

  // x s, s = sigmoid(x); 0 at -infinity
  template <class T>
  DUET_HD static T f(T x) {
    return (x < T(-kLimit) ? T(-kLimit) : x) * duet::sigmoid<T>(x);
  }
  // s (1 + x (1 - s))
  template <class T>
  DUET_HD static T df(T x) {
    const T s = duet::sigmoid<T>(x);
    return s + clamp(x, T(kLimit)) * s * (T(1) - s);
  }
};

}  // namespace duet
