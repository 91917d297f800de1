// gelu_tanh(x) = x (1 + tanh(u)) / 2 = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). The
// sigmoid form does not cancel for negative x.
#include "ops/ops.h"
#include "ops/pointwise/gelu_tanh.h"
#include "ops/pointwise/pointwise.h"

namespace duet {
namespace {

struct GeluTanh {
  static constexpr const char* name = "gelu_tanh";
  static constexpr UnaryF32 vector_f = gelu_tanh_f32;
  static constexpr UnaryGradF32 vector_df = gelu_tanh_grad_f32;
  static constexpr double kLimit = 50;  // the sigmoid is 0 below -limit, 1 above, in either type
  static constexpr double kTwoRoot = 1.5957691216057307118;  // 2 sqrt(2/pi)
  static constexpr double kCubic = 0.044715;

  template <class T>
  DUET_HD static T half_tanh(T x) {  // x bounded
    return duet::sigmoid<T>(T(kTwoRoot) * x * (T(1) + T(kCubic) * x * x));
  }
  template <class T>
  DUET_HD static T f(T x) {
    const T bounded = x < T(-kLimit) ? T(-kLimit) : x;
    return bounded * half_tanh(bounded);
  }
  // s + x s (1 - s) 2u',  2u' = 2 sqrt(2/pi) (1 + 3 * 0.044715 x^2)
  template <class T>
  DUET_HD static T df(T x) {
    const T c = clamp(x, T(kLimit));
    const T s = half_tanh(c);
    return s + c * s * (T(1) - s) * T(kTwoRoot) * (T(1) + T(3 * kCubic) * c * c);
  }
};

}  // namespace

Tensor gelu_tanh(const Tensor& x) { return pointwise<GeluTanh>(x); }

const KernelTable<PointwiseKernels>& gelu_tanh_kernels() { return pointwise_table<GeluTanh>; }

Tensor gelu_tanh_gradient(const Tensor& x, const Tensor& dy) {
  return apply(PointwiseGrad<GeluTanh>{}, x, dy);
}

}  // namespace duet
