// sigmoid(x) = 1 / (1 + exp(-x))
#include "ops/ops.h"
#include "ops/pointwise/pointwise.h"

namespace duet {
namespace {

struct Sigmoid {
  static constexpr const char* name = "sigmoid";
  static constexpr UnaryF32 vector_f = nullptr;  // serves lambda of diff_v2: one number a head
  static constexpr UnaryGradF32 vector_df = nullptr;

  template <class T>
  DUET_HD static T f(T x) {
    return duet::sigmoid<T>(x);
  }
  // s (1 - s), 1 - s = sigmoid(-x): right in both tails
  template <class T>
  DUET_HD static T df(T x) {
    return duet::sigmoid<T>(x) * duet::sigmoid<T>(-x);
  }
};

}  // namespace

Tensor sigmoid(const Tensor& x) { return pointwise<Sigmoid>(x); }

}  // namespace duet
