// grad() and create_graph: values, what is kept, what is freed, what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/recompute.h"
#include "autograd/saved_tensor.h"
#include "ops/ops.h"
#include "tests/autograd/test_ops.h"

namespace duet::test {
namespace {

const GradOptions kGraph{.create_graph = true};

TEST(Grad, GivesDerivativesAndTouchesNoLeaf) {
  const Tensor a = leaf(3), b = leaf(5), unused = leaf(7);
  const Tensor product = mul(a, b);
  const Tensor y = mul(product, a);  // a^2 b
  const std::vector<Tensor> d = grad(y, {a, b, product, unused, a, y});
  EXPECT_EQ(d[0].item(), 30.0);
  EXPECT_EQ(d[1].item(), 9.0);
  EXPECT_EQ(d[2].item(), 3.0);
  EXPECT_FALSE(d[3].defined());
  EXPECT_EQ(d[4].item(), 30.0);
  EXPECT_EQ(d[5].item(), 1.0);
  for (const Tensor& t : {a, b, unused}) EXPECT_FALSE(grad(t).defined());
  for (const Tensor& t : d) EXPECT_TRUE(!t.defined() || !requires_grad(t));
}

TEST(Grad, LeavesAnExistingGradientAlone) {
  const Tensor a = leaf(3);
  set_grad(a, Tensor::full({}, 100, DType::f64));
  EXPECT_EQ(grad(mul(a, a), {a})[0].item(), 6.0);
  EXPECT_EQ(grad(a).item(), 100.0);
}

TEST(Grad, ResultsHaveBytesOfTheirOwn) {
  const Tensor a = leaf(1, {2}), b = leaf(1, {2});
  const Tensor dy = Tensor::full({2}, 4, DType::f64);
  std::vector<Tensor> d = grad(plus(a, b), {a, b}, {.grad_output = dy});
  fill(d[0], 9);
  EXPECT_EQ(d[1].data<double>()[0], 4.0);
  EXPECT_EQ(dy.data<double>()[0], 4.0);
}

// y = a, whose backward must not run.
struct NoGradientAtAll {
  static constexpr const char* name = "no_gradient_at_all";
  struct Saved {};
  Tensor forward(Saved&, const Tensor& a) const { return clone(a); }
};

TEST(Grad, RunsOnlyTheNodesOnTheWay) {
  const Tensor a = leaf(2), b = leaf(3);
  const Tensor inner = square(a);
  const Tensor y = mul(inner, apply(NoGradientAtAll{}, b));
  EXPECT_EQ(grad(y, {inner})[0].item(), 3.0);
  const Tensor again = mul(square(a), apply(NoGradientAtAll{}, b));
  EXPECT_EQ(grad(again, {a})[0].item(), 12.0);
}

TEST(Grad, RunsHooks) {
  const Tensor a = leaf(3);
  const Tensor b = mul(a, a);
  int calls = 0;
  register_hook(b, [&](const Tensor& g) {
    ++calls;
    return scale(g, 10);
  });
  register_hook(a, [&](const Tensor& g) {
    ++calls;
    return scale(g, 2);
  });
  EXPECT_EQ(grad(mul(b, b), {b})[0].item(), 180.0);
  EXPECT_EQ(calls, 1);
  const Tensor c = mul(a, a);  // a's hook alone
  const Tensor first = grad(mul(c, a), {a}, kGraph)[0];
  EXPECT_EQ(first.item(), 54.0);                // 2 * 3 a^2
  EXPECT_EQ(grad(first, {a})[0].item(), 72.0);  // 2 * (2 * 6 a): the hook is on both ways
  EXPECT_EQ(calls, 3);
}

TEST(Grad, SaysWhatIsWrong) {
  const Tensor a = leaf(1, {2});
  EXPECT_EQ(error_text([&] { grad(same(a), {a}); }),
            "grad: without a grad_output the output must have one element, got shape [2]");
  EXPECT_EQ(error_text([&] {
              grad(sum(a), {a, a.detach()});
            }),
            "grad: input 1 does not require grad; call set_requires_grad() on it before the output "
            "is computed");
  EXPECT_EQ(error_text([&] { grad(sum(a.detach()), {a}); }),
            "grad: the output does not require grad; was it computed under a NoGradGuard?");
  EXPECT_EQ(error_text([&] { grad(a, {a}, {.grad_output = Tensor::zeros({3}, DType::f64)}); }),
            "grad: grad_output is [3], expected [2]");
  EXPECT_TRUE(grad(sum(a), {}).empty());
}

// d^n/dx^n of x^4 by mul alone: 4 x^3, 12 x^2, 24 x, 24
TEST(CreateGraph, ComposesToAnyOrder) {
  const Tensor x = leaf(1.5);
  const Tensor square_of = mul(x, x);
  Tensor y = mul(square_of, square_of);
  const double want[] = {4 * 1.5 * 1.5 * 1.5, 12 * 1.5 * 1.5, 24 * 1.5, 24};
  for (const double w : want) {
    y = grad(y, {x}, kGraph)[0];
    EXPECT_NEAR(y.item(), w, 1e-12);
  }
  EXPECT_FALSE(grad(x).defined());
}

TEST(CreateGraph, BackwardLeavesAGradientToBeDifferentiated) {
  const Tensor x = leaf(2);
  const Tensor y = mul(mul(x, x), x);
  backward(y, kGraph);
  const Tensor first = grad(x);
  EXPECT_EQ(first.item(), 12.0);
  EXPECT_TRUE(requires_grad(first));
  set_grad(x, {});
  backward(mul(first, first));  // 9 x^4 -> 36 x^3
  EXPECT_EQ(grad(x).item(), 288.0);
}

TEST(CreateGraph, GradientsAddUp) {
  const Tensor x = leaf(2);
  const Tensor y = mul(mul(x, x), x);
  backward(y, kGraph);
  backward(y, kGraph);  // the graph was kept
  EXPECT_EQ(grad(x).item(), 24.0);
  EXPECT_EQ(grad(grad(x), {x}, kGraph)[0].item(), 24.0);  // 2 * 6 x
  // A plain walk adds to the value, and does not write into what the graph holds.
  const Tensor with_graph = grad(x);
  backward(y);
  EXPECT_EQ(grad(x).item(), 36.0);
  EXPECT_FALSE(requires_grad(grad(x)));
  EXPECT_EQ(with_graph.item(), 24.0);
  EXPECT_NE(error_text([&] { backward(y); }).find("ran twice"), std::string::npos);
}

TEST(CreateGraph, TwoConsumersMeet) {
  const Tensor x = leaf(3);
  const Tensor y = mul(x, x);
  const Tensor z = add(mul(y, y), y);  // x^4 + x^2
  const Tensor first = grad(z, {x}, kGraph)[0];
  EXPECT_EQ(first.item(), 4 * 27.0 + 6);
  EXPECT_EQ(grad(first, {x})[0].item(), 12 * 9.0 + 2);
}

TEST(CreateGraph, TheGradOutputIsDifferentiatedToo) {
  const Tensor x = leaf(3), w = leaf(5);
  const Tensor first = grad(mul(x, x), {x}, {.create_graph = true, .grad_output = w})[0];
  const std::vector<Tensor> d = grad(first, {x, w});  // 2 x w
  EXPECT_EQ(d[0].item(), 10.0);
  EXPECT_EQ(d[1].item(), 6.0);
}

TEST(CreateGraph, AnOpWithoutItRefusesBeforeAnythingIsWritten) {
  const Tensor a = leaf(3), b = leaf(4);
  const Tensor y = mul(square(a), b);
  const std::string text =
      "square: second derivatives are not offered; differentiate without create_graph, or compose "
      "what the op computes of ops that offer them";
  EXPECT_EQ(error_text([&] { backward(y, kGraph); }), text);
  EXPECT_FALSE(grad(b).defined());
  EXPECT_EQ(error_text([&] { grad(y, {a}, kGraph); }), text);
  EXPECT_STREQ(op_without_second_order(y), "square");
  EXPECT_EQ(op_without_second_order(mul(a, b)), nullptr);
  EXPECT_EQ(grad(y, {b}, kGraph)[0].item(), 9.0);  // square is not on the way
  backward(y);                                     // and the graph is whole
  EXPECT_EQ(grad(a).item(), 24.0);
}

TEST(CreateGraph, RecomputeRefusesByName) {
  const Tensor a = leaf(3);
  const Tensor y =
      recompute("part", [](const std::vector<Tensor>& in) { return mul(in[0], in[0]); }, {a});
  EXPECT_EQ(error_text([&] { backward(y, kGraph); }).rfind("recompute: second derivatives", 0), 0U);
}

// --- Memory

TEST(CreateGraph, OffFreesAsBefore) {
  const std::size_t before = saved_bytes();
  const Tensor x = leaf(2, {64});
  const Tensor y = sum(mul(mul(x, x), x));
  EXPECT_GT(saved_bytes(), before);
  grad(y, {x});
  EXPECT_EQ(saved_bytes(), before);
  EXPECT_NE(error_text([&] { grad(y, {x}); }).find("ran twice"), std::string::npos);
}

TEST(CreateGraph, TheGraphGoesWithItsTensors) {
  const std::size_t before = saved_bytes();
  const std::size_t live = allocator(kCpu).stats().allocated;
  {
    const Tensor x = leaf(2, {64});
    const Tensor w = leaf(2, {64});
    const Tensor first = grad(sum(silu(mul(x, w))), {x}, kGraph)[0];
    EXPECT_GT(saved_bytes(), before);
    backward(sum(mul(first, first)));
    EXPECT_TRUE(grad(w).defined());
  }
  EXPECT_EQ(saved_bytes(), before);
  EXPECT_EQ(allocator(kCpu).stats().allocated, live);
}

// A leaf's gradient whose graph saved that leaf is no cycle: it goes when the leaf goes.
TEST(CreateGraph, AGradientWithAGraphDiesWithItsLeaf) {
  const std::size_t before = saved_bytes();
  const std::size_t live = allocator(kCpu).stats().allocated;
  {
    const Tensor x = leaf(2, {64});
    backward(sum(mul(mul(x, x), x)), kGraph);
    EXPECT_TRUE(requires_grad(grad(x)));
    EXPECT_GT(saved_bytes(), before);
  }
  EXPECT_EQ(saved_bytes(), before);
  EXPECT_EQ(allocator(kCpu).stats().allocated, live);
  const Tensor x = leaf(2, {64});
  backward(sum(mul(mul(x, x), x)), kGraph);
  set_grad(x, {});
  EXPECT_EQ(saved_bytes(), before);
}

// y = e^x, keeping y, as softmax does.
struct KeepsOutput {
  static constexpr const char* name = "keeps_output";
  struct Saved {
    SavedTensor y;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    const Tensor y = exp(x);
    saved.y.save_output(y);
    return y;
  }
  Tensor backward(const Saved& saved, const Tensor& dy) const { return mul(saved.y.get(name), dy); }
  Tensor differentiable_backward(const Saved& saved, const Tensor& dy,
                                 const GradRequest& request) const {
    return mul(request.own_output(saved.y.get(name)), dy);
  }
};

TEST(CreateGraph, ASavedOutputKeepsItsWayBackAndNoCycle) {
  const std::size_t before = saved_bytes();
  {
    const Tensor x = leaf(0.5);
    Tensor y = apply(KeepsOutput{}, x);
    for (int order = 1; order <= 3; ++order) {
      y = grad(y, {x}, kGraph)[0];
      EXPECT_DOUBLE_EQ(y.item(), std::exp(0.5)) << order;
    }
  }
  EXPECT_EQ(saved_bytes(), before);
}

TEST(CreateGraph, DeepGraphsAreWalkedOnASmallStack) {
  on_small_stack([] {
    const Tensor x = leaf(1);
    Tensor y = x;
    for (int i = 0; i < 100'000; ++i) y = add(y, x);
    const Tensor first = grad(mul(y, x), {x}, kGraph)[0];
    EXPECT_EQ(grad(first, {x})[0].item(), 2 * 100'001.0);
  });
}

}  // namespace
}  // namespace duet::test
