// softplus(x) = log(1 + exp(x))
#include "ops/ops.h"
#include "ops/pointwise/pointwise.h"

namespace duet {
namespace {

struct Softplus {
  static constexpr const char* name = "softplus";
  static constexpr UnaryF32 vector_f = nullptr;  // serves step sizes: a few numbers a layer
  static constexpr UnaryGradF32 vector_df = nullptr;

  // max(x, 0) + log(1 + exp(-|x|)): no overflow on either side
  template <class T>
  DUET_HD static T f(T x) {
    return (x > T(0) ? x : T(0)) + std::log1p(std::exp(x > T(0) ? -x : x));
  }
  // sigmoid(x)
  template <class T>
  DUET_HD static T df(T x) {
    return duet::sigmoid<T>(x);
  }
};

}  // namespace

Tensor softplus(const Tensor& x) { return pointwise<Softplus>(x); }

}  // namespace duet
