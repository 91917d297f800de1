// gelu(x) = x Phi(x), Phi the normal distribution function
#include "ops/ops.h"
#include "ops/pointwise/pointwise.h"

namespace duet {
namespace {

struct Gelu {
  static constexpr const char* name = "gelu";
  static constexpr UnaryF32 vector_f = gelu_f32;
  static constexpr UnaryGradF32 vector_df = gelu_grad_f32;
  static constexpr double kLimit = 50;  // Phi is 0 below -limit in either type

  template <class T>
  DUET_HD static T phi(T x) {
    using std::erfc;
    return T(0.5) * erfc(x * T(-0.70710678118654752440));
  }
  // x Phi(x); 0 at -infinity
  template <class T>
  DUET_HD static T f(T x) {
    return (x < T(-kLimit) ? T(-kLimit) : x) * phi(x);
  }
  // Phi(x) + x exp(-x^2 / 2) / sqrt(2 pi)
  template <class T>
  DUET_HD static T df(T x) {
    using std::exp;
    const T c = clamp(x, T(kLimit));
    return phi(x) + c * exp(T(-0.5) * c * c) * T(0.39894228040143267794);
  }
};

}  // namespace

Tensor gelu(const Tensor& x) { return pointwise<Gelu>(x); }

}  // namespace duet
