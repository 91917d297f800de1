// exp(x) = e^x
#include "ops/ops.h"
#include "ops/pointwise/pointwise.h"

namespace duet {
namespace {

struct Exp {
  static constexpr const char* name = "exp";
  static constexpr UnaryF32 vector_f = nullptr;  // serves lambda of diff: two numbers a layer
  static constexpr UnaryGradF32 vector_df = nullptr;

  template <class T>
  DUET_HD static T f(T x) {
    using std::exp;
    return exp(x);
  }
  // e^x
  template <class T>
  DUET_HD static T df(T x) {
    using std::exp;
    return exp(x);
  }
};

}  // namespace

Tensor exp(const Tensor& x) { return pointwise<Exp>(x); }

}  // namespace duet
