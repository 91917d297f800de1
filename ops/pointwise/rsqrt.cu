// rsqrt(x, eps) = 1 / sqrt(x + eps), for the second derivatives of the norms.
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/rsqrt.h"

namespace duet {
namespace {

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

}  // namespace

Tensor rsqrt(const Tensor& x, double eps) {
  return pointwise<Rsqrt>(add(x, Tensor::full({}, eps, x.dtype(), x.device())));
}

}  // namespace duet
