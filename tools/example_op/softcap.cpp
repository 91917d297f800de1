// softcap(x, c) = c tanh(x / c): its scalar function and two derivatives make a differentiable op.
#include "softcap.h"

#include "ops/pointwise/pointwise_binary.h"

namespace example {
namespace {

struct Softcap {
  static constexpr const char* name = "softcap";
  static constexpr duet::BinaryF32 vector_f = nullptr;

  template <class T>
  DUET_HD static T f(T x, T c) {
    return c * std::tanh(x / c);
  }
  // 1 - t^2, t = tanh(x / c)
  template <class T>
  DUET_HD static T da(T x, T c) {
    using std::tanh;  // of duals too: the second derivatives are da and db on dual numbers
    const T t = tanh(x / c);
    return T(1) - t * t;
  }
  // t - x / c (1 - t^2)
  template <class T>
  DUET_HD static T db(T x, T c) {
    using std::tanh;
    const T t = tanh(x / c);
    return t - x / c * (T(1) - t * t);
  }
};

}  // namespace

duet::Tensor softcap(const duet::Tensor& x, const duet::Tensor& c) {
  return duet::pointwise<Softcap>(x, c);
}

}  // namespace example
