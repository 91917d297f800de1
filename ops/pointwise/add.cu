// add(a, b) = a + b, broadcasting.
#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "ops/ops.h"
#include "ops/pointwise/binary.h"
#include "ops/reduce/reduce.h"

namespace duet {
namespace {

struct AddScalars {
  static constexpr const char* name = "add";
  static constexpr auto vector_f = add_f32;
  template <class T>
  DUET_HD static T f(T a, T b) {
    return a + b;
  }
};

struct Add {
  static constexpr const char* name = "add";
  struct Saved {};
  Shape shape, a_shape, b_shape;

  Tensor forward(Saved&, const Tensor& a, const Tensor& b) const {
    return binary<AddScalars>(a, b, shape);
  }
  // da = dy, db = dy, each summed over the dims in which it was broadcast
  std::array<Tensor, 2> backward(const Saved&, const Tensor& dy, const GradRequest& r) const {
    return {r.needed(0) ? sum_to(dy, a_shape) : Tensor(),
            r.needed(1) ? sum_to(dy, b_shape) : Tensor()};
  }
  std::array<Tensor, 2> differentiable_backward(const Saved&, const Tensor& dy,
                                                const GradRequest& r) const {
    return {r.needed(0) ? differentiable_sum_to(dy, a_shape) : Tensor(),
            r.needed(1) ? differentiable_sum_to(dy, b_shape) : Tensor()};
  }
};

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  check_inputs("add", {{"a", a}, {"b", b}});
  return apply(Add{broadcast_shapes(a.shape(), b.shape(), "add"), a.shape(), b.shape()}, a, b);
}

}  // namespace duet
