// mul(a, b) = a * b, broadcasting.
#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "ops/ops.h"
#include "ops/pointwise/binary.h"
#include "ops/reduce/reduce.h"

namespace duet {
namespace {

struct MulScalars {
  static constexpr const char* name = "mul";
  static constexpr auto vector_f = mul_f32;
  template <class T>
  DUET_HD static T f(T a, T b) {
    return a * b;
  }
};

struct Mul {
  static constexpr const char* name = "mul";
  struct Saved {
    SavedTensor a, b;
  };
  Shape shape, a_shape, b_shape;

  // Keeps an operand only if the other one needs its gradient.
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    if (requires_grad(b)) saved.a.save_input(a);
    if (requires_grad(a)) saved.b.save_input(b);
    return binary<MulScalars>(a, b, shape);
  }
  // da = dy * b, db = dy * a, each summed over the dims in which it was broadcast
  std::array<Tensor, 2> backward(const Saved& saved, const Tensor& dy, const GradRequest& r) const {
    const auto times = [&](const SavedTensor& other, const Shape& to) {
      return sum_to(binary<MulScalars>(dy, other.get(name), shape), to);
    };
    return {r.needed(0) ? times(saved.b, a_shape) : Tensor(),
            r.needed(1) ? times(saved.a, b_shape) : Tensor()};
  }
  std::array<Tensor, 2> differentiable_backward(const Saved& saved, const Tensor& dy,
                                                const GradRequest& r) const {
    const auto times = [&](const SavedTensor& other, const Shape& to) {
      return differentiable_sum_to(mul(dy, other.with_edge(name)), to);
    };
    return {r.needed(0) ? times(saved.b, a_shape) : Tensor(),
            r.needed(1) ? times(saved.a, b_shape) : Tensor()};
  }
};

}  // namespace

Tensor mul(const Tensor& a, const Tensor& b) {
  check_inputs("mul", {{"a", a}, {"b", b}});
  return apply(Mul{broadcast_shapes(a.shape(), b.shape(), "mul"), a.shape(), b.shape()}, a, b);
}

}  // namespace duet
