// sub(a, b) = a - b, broadcasting.
#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "ops/ops.h"
#include "ops/pointwise/binary.h"
#include "ops/reduce/reduce.h"

namespace duet {
namespace {

struct SubScalars {
  static constexpr const char* name = "sub";
  static constexpr auto vector_f = sub_f32;
  template <class T>
  DUET_HD static T f(T a, T b) {
    return a - b;
  }
};

struct Sub {
  static constexpr const char* name = "sub";
  struct Saved {};
  Shape shape, a_shape, b_shape;

  Tensor forward(Saved&, const Tensor& a, const Tensor& b) const {
    return binary<SubScalars>(a, b, shape);
  }
  // da = dy, db = -dy, each summed over the dims in which it was broadcast
  std::array<Tensor, 2> backward(const Saved&, const Tensor& dy, const GradRequest& r) const {
    return {r.needed(0) ? sum_to(dy, a_shape) : Tensor(),
            r.needed(1) ? scale(sum_to(dy, b_shape), -1) : Tensor()};
  }
  std::array<Tensor, 2> differentiable_backward(const Saved&, const Tensor& dy,
                                                const GradRequest& r) const {
    return {r.needed(0) ? differentiable_sum_to(dy, a_shape) : Tensor(),
            r.needed(1) ? scale(differentiable_sum_to(dy, b_shape), -1) : Tensor()};
  }
};

}  // namespace

Tensor sub(const Tensor& a, const Tensor& b) {
  check_inputs("sub", {{"a", a}, {"b", b}});
  return apply(Sub{broadcast_shapes(a.shape(), b.shape(), "sub"), a.shape(), b.shape()}, a, b);
}

}  // namespace duet
