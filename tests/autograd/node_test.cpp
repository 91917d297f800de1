// The backward graph: order, accumulation, teardown, refusals.
#include "autograd/node.h"

#include <gtest/gtest.h>

#include "autograd/saved_tensor.h"
#include "ops/ops.h"
#include "tests/autograd/test_ops.h"

namespace duet::test {
namespace {

// C69: a = 1, b = a + a, c = b + b; dc/da = 4.
TEST(Autograd, ReusedTensorsAccumulate) {
  const Tensor a = leaf(1);
  const Tensor b = plus(a, a);
  const Tensor c = plus(b, b);
  backward(c);
  EXPECT_EQ(c.item(), 4.0);
  EXPECT_EQ(grad(a).item(), 4.0);
}

// C69: a diamond of unequal arms waits for the longer one.
TEST(Autograd, ANodeWaitsForAllItsConsumers) {
  const Tensor a = leaf(3);
  const Tensor b = square(a);                               // 9
  const Tensor c = plus(b, square(same(same(square(b)))));  // b + b^4
  backward(c);
  EXPECT_EQ(grad(a).item(), (1 + 4.0 * 9 * 9 * 9) * 6);
}

enum class Chain { single, doubled, tree };

// A graph of a million nodes.
Tensor million_nodes(const Tensor& a, Chain kind) {
  Tensor x = a, y = a;
  for (int i = 0; i < 1'000'000; ++i) {
    switch (kind) {
      case Chain::single:
        x = same(x);
        break;
      case Chain::doubled:  // both edges lead to the same node
        x = plus(x, x);
        break;
      case Chain::tree:  // two strands that cross
        std::swap(x, y);
        x = plus(x, y);
        break;
    }
  }
  return x;
}

class DeepGraph : public testing::TestWithParam<Chain> {};

TEST_P(DeepGraph, IsDroppedOnASmallStack) {
  const Tensor a = leaf(0);
  on_small_stack([&] { million_nodes(a, GetParam()); });
  EXPECT_FALSE(grad(a).defined());
}

TEST_P(DeepGraph, IsWalkedOnASmallStack) {
  const Tensor a = leaf(0);
  on_small_stack([&] { backward(million_nodes(a, GetParam())); });
  ASSERT_TRUE(grad(a).defined());
  if (GetParam() == Chain::single) {
    EXPECT_EQ(grad(a).item(), 1.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Autograd, DeepGraph,
                         testing::Values(Chain::single, Chain::doubled, Chain::tree));

// C40: a model that runs forward with a graph, never backward, keeps nothing.
TEST(Autograd, ForwardsWithoutBackwardKeepNothing) {
  const Tensor w = leaf(0.5, {8, 8});
  const auto forward = [&] { sum(gelu(mul(add(w, w), w))); };
  forward();
  const std::size_t saved = saved_bytes();
  const std::size_t live = allocator(kCpu).stats().allocated;
  const std::size_t reserved = allocator(kCpu).stats().reserved;
  for (int i = 0; i < 10'000; ++i) forward();
  EXPECT_EQ(saved_bytes(), saved);
  EXPECT_EQ(allocator(kCpu).stats().allocated, live);
  EXPECT_EQ(allocator(kCpu).stats().reserved, reserved);
}

TEST(Autograd, SecondBackwardIsRefused) {
  const Tensor a = leaf(2);
  const Tensor keeps = square(a), keeps_nothing = same(a);
  backward(keeps);
  backward(keeps_nothing);
  EXPECT_EQ(error_text([&] { backward(keeps); }),
            "square: backward ran twice through the same graph; its saved tensors were already "
            "freed; run the forward again");
  EXPECT_EQ(error_text([&] { backward(keeps_nothing); }),
            "same: backward ran twice through the same graph; its saved tensors were already "
            "freed; run the forward again");
  EXPECT_EQ(grad(a).item(), 5.0) << "the refused walks must not have added anything";
}

TEST(Autograd, GradientsAddUpOverBackwards) {
  const Tensor a = leaf(3);
  for (int i = 1; i <= 3; ++i) {
    backward(square(a));
    EXPECT_EQ(grad(a).item(), 6.0 * i);
  }
  set_grad(a, {});
  EXPECT_FALSE(grad(a).defined());
  backward(square(a));
  EXPECT_EQ(grad(a).item(), 6.0);
}

TEST(Autograd, NoGradRecordsNothing) {
  const Tensor a = leaf(3);
  Tensor b;
  {
    const NoGradGuard no_grad;
    b = square(a);
    {
      const EnableGradGuard enable;
      EXPECT_TRUE(requires_grad(square(a)));
    }
    EXPECT_FALSE(grad_enabled());
  }
  EXPECT_TRUE(grad_enabled());
  EXPECT_FALSE(requires_grad(b));
  EXPECT_EQ(error_text([&] { backward(b); }),
            "backward: the output does not require grad; was it computed under a NoGradGuard?");
}

TEST(Autograd, DetachCutsTheGraph) {
  const Tensor a = leaf(3);
  const Tensor b = square(a);
  backward(plus(b.detach(), square(a)));
  EXPECT_EQ(grad(a).item(), 6.0);
  EXPECT_FALSE(requires_grad(b.detach()));
}

TEST(Autograd, MarkingALeafTwiceKeepsItsGraph) {
  Tensor a = leaf(3);
  const Tensor b = square(a);
  set_requires_grad(a);
  backward(b);
  EXPECT_EQ(grad(a).item(), 6.0);
}

TEST(Autograd, RefusalsSayWhatIsWrong) {
  Tensor a = leaf(1, {2});
  Tensor y = same(a);
  EXPECT_EQ(error_text([&] { backward(y); }),
            "backward: without a grad_output the output must have one element, got shape [2]");
  EXPECT_EQ(error_text([&] { backward(y, Tensor::zeros({3}, DType::f64)); }),
            "backward: grad_output is [3], expected [2]");
  EXPECT_EQ(error_text([&] { backward(y, Tensor::zeros({2}, DType::f32)); }),
            "backward: grad_output is f32 on cpu, expected f64 on cpu");
  EXPECT_EQ(error_text([&] { set_requires_grad(y); }),
            "set_requires_grad: an op made this tensor, only leaves can be marked; detach() it "
            "first");
  EXPECT_EQ(error_text([&] { grad(y); }),
            "grad: an op (same) made this tensor, only leaves keep their gradient; use "
            "register_hook to see it");
  EXPECT_EQ(error_text([&] { grad(y.detach()); }), "grad: this tensor does not require grad");
  EXPECT_EQ(error_text([&] { set_grad(a, Tensor::zeros({3}, DType::f64)); }),
            "set_grad: shapes differ: got [3], expected [2]");
  EXPECT_NE(error_text([&] { set_grad(a, Tensor::zeros({2}, DType::f32)); }), "");
  EXPECT_NE(error_text([&] { set_grad(y, Tensor::zeros({2}, DType::f64)); }), "");
  EXPECT_NE(error_text([&] { register_hook(y.detach(), [](const Tensor& g) { return g; }); }), "");
  Tensor ids = Tensor::zeros({2}, DType::i64);
  EXPECT_EQ(error_text([&] { set_requires_grad(ids); }),
            "set_requires_grad: got i64, expected a floating dtype");
}

// --- Hooks

TEST(Hooks, ReplaceTheGradientOfALeafAndOfAnInnerTensor) {
  const Tensor a = leaf(3);
  const Tensor b = square(a);
  const Tensor c = plus(b, b);
  std::vector<double> seen;
  register_hook(b, [&](const Tensor& g) {
    seen.push_back(g.item());
    return scale(g, 10);
  });
  register_hook(a, [&](const Tensor& g) {
    seen.push_back(g.item());
    return scale(g, -1);
  });
  backward(c);
  EXPECT_EQ(seen, (std::vector<double>{2, 120})) << "each sees its gradient once, complete";
  EXPECT_EQ(grad(a).item(), -120.0);
}

TEST(Hooks, ThatReturnNothingOnlyLook) {
  const Tensor a = leaf(3);
  int calls = 0;
  register_hook(a, [&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  backward(plus(square(a), square(a)));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(grad(a).item(), 12.0);
}

TEST(Hooks, OnALeafSeeEachBackwardAlone) {
  const Tensor a = leaf(3);
  std::vector<double> seen;
  register_hook(a, [&](const Tensor& g) {
    seen.push_back(g.item());
    return Tensor();
  });
  backward(square(a));
  backward(square(a));
  EXPECT_EQ(seen, (std::vector<double>{6, 6}));
  EXPECT_EQ(grad(a).item(), 12.0);
}

TEST(Hooks, RunInOrderAndMayRegisterMore) {
  const Tensor a = leaf(3);
  const Tensor b = square(a);
  register_hook(b, [&](const Tensor& g) {
    register_hook(b, [](const Tensor& h) { return scale(h, 2); });
    return scale(g, 3);
  });
  backward(b);
  EXPECT_EQ(grad(a).item(), 36.0);
}

TEST(Hooks, MustKeepTheShape) {
  const Tensor b = square(leaf(3));
  register_hook(b, [](const Tensor&) { return Tensor::zeros({2}, DType::f64); });
  EXPECT_EQ(error_text([&] { backward(b); }),
            "square: a hook replaced the gradient by one that does not fit: got f64 [2], expected "
            "f64 []");
}

}  // namespace
}  // namespace duet::test
