// The backward graph: order, accumulation, teardown, refusals.
#include <gtest/gtest.h>

#include "autograd/op.h"
#include "runtime/memory_ops.h"

namespace duet::test {
namespace {

// y = a + b, the smallest op there is.
struct Plus {
  static constexpr const char* name = "plus";
  struct Saved {};
  Tensor forward(Saved&, const Tensor& a, const Tensor& b) const {
    Tensor y = clone(a);
    accumulate(y, b);
    return y;
  }
  std::array<Tensor, 2> backward(const Saved&, const Tensor& dy) const { return {dy, dy}; }
};
Tensor plus(const Tensor& a, const Tensor& b) { return apply(Plus{}, a, b); }

TEST(Autograd, ReusedTensorsAccumulate) {
  Tensor a = Tensor::full({}, 1.0, DType::f64);
  set_requires_grad(a);
  const Tensor b = plus(a, a);
  const Tensor c = plus(b, b);
  backward(c);
  EXPECT_EQ(c.item(), 4.0);
  EXPECT_EQ(grad(a).item(), 4.0);
}

}  // namespace
}  // namespace duet::test
