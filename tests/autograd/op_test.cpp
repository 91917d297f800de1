// How ops join the graph: several outputs, optional inputs, buffers to add into, ops without a
// gradient, gradients that do not fit.
#include "autograd/op.h"

#include <gtest/gtest.h>

#include "ops/ops.h"
#include "tests/autograd/test_ops.h"

namespace duet::test {
namespace {

// C62: an op without a gradient is named when backward reaches it, and detach() is the way out.
struct Frozen {
  static constexpr const char* name = "frozen";
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const { return clone(x); }
};

TEST(OpStructs, WithoutABackwardAreNamed) {
  const Tensor a = leaf(2);
  const Tensor y = apply(Frozen{}, square(a));
  EXPECT_EQ(y.item(), 4.0);
  EXPECT_EQ(error_text([&] { backward(y); }),
            "frozen: this op has no gradient; detach() its input, or use an op that has one");
  const Tensor z = plus(apply(Frozen{}, square(a).detach()), square(a));
  backward(z);
  EXPECT_EQ(grad(a).item(), 4.0);
}

// Two outputs: (2x, 3x). dx = 2 dy0 + 3 dy1, where either may be missing.
struct Fork {
  static constexpr const char* name = "fork";
  struct Saved {};
  std::array<Tensor, 2> forward(Saved&, const Tensor& x) const {
    return {scale(x, 2), scale(x, 3)};
  }
  Tensor backward(const Saved&, const std::vector<Tensor>& dy) const {
    Tensor dx = Tensor::zeros(dy[0].defined() ? dy[0].shape() : dy[1].shape(), DType::f64);
    if (dy[0].defined()) accumulate(dx, scale(dy[0], 2));
    if (dy[1].defined()) accumulate(dx, scale(dy[1], 3));
    return dx;
  }
};

TEST(OpStructs, WithTwoOutputsGetUndefinedForTheUnusedOne) {
  for (const std::size_t used : {0U, 1U}) {
    const Tensor a = leaf(1);
    const std::array<Tensor, 2> y = apply(Fork{}, a);
    backward(y[used]);
    EXPECT_EQ(grad(a).item(), used == 0 ? 2.0 : 3.0);
  }
  const Tensor a = leaf(1);
  const std::array<Tensor, 2> y = apply(Fork{}, a);
  backward(plus(plus(y[0], y[1]), y[0]));
  EXPECT_EQ(grad(a).item(), 7.0);
}

TEST(OpStructs, WithTwoOutputsTakeAHookOnEach) {
  const Tensor a = leaf(1);
  const std::array<Tensor, 2> y = apply(Fork{}, a);
  register_hook(y[1], [](const Tensor& g) { return scale(g, 100); });
  backward(plus(y[0], y[1]));
  EXPECT_EQ(grad(a).item(), 302.0);
}

// y = x + bias, where bias may be undefined.
struct MaybeBias {
  static constexpr const char* name = "maybe_bias";
  struct Saved {
    SavedTensor bias;
  };
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& bias) const {
    saved.bias.save_input(bias);
    Tensor y = clone(x);
    if (bias.defined()) accumulate(y, bias);
    return y;
  }
  std::array<Tensor, 2> backward(const Saved& saved, const Tensor& dy, const GradRequest& r) const {
    EXPECT_EQ(r.size(), 2U);
    EXPECT_EQ(r.needed(1), saved.bias.get(name).defined());
    return {dy, r.needed(1) ? dy : Tensor()};
  }
};

TEST(OpStructs, TakeUndefinedInputs) {
  const Tensor a = leaf(1), b = leaf(2);
  backward(apply(MaybeBias{}, a, Tensor()));
  EXPECT_EQ(grad(a).item(), 1.0);
  backward(apply(MaybeBias{}, a, b));
  EXPECT_EQ(grad(a).item(), 2.0);
  EXPECT_EQ(grad(b).item(), 1.0);
}

// Returns gradients as it is told to.
struct Misfit {
  static constexpr const char* name = "misfit";
  struct Saved {};
  std::vector<Tensor> grads;
  Tensor forward(Saved&, const Tensor& x) const { return clone(x); }
  std::vector<Tensor> backward(const Saved&, const Tensor&) const { return grads; }
};

TEST(OpStructs, WhoseGradientsDoNotFitAreNamed) {
  const Tensor a = leaf(1, {2});
  const auto text = [&](const std::vector<Tensor>& grads) {
    return error_text([&] { backward(sum(apply(Misfit{grads}, a))); });
  };
  EXPECT_EQ(text({Tensor::zeros({2, 1}, DType::f64)}),
            "misfit: backward returned f64 [2, 1] for input 0, expected f64 [2]");
  EXPECT_EQ(text({Tensor::zeros({2}, DType::f32)}),
            "misfit: backward returned f32 [2] for input 0, expected f64 [2]");
  EXPECT_EQ(text({Tensor(), Tensor()}), "misfit: backward returned 2 gradients for 1 inputs");
  EXPECT_FALSE(grad(a).defined());
}

struct Rank {
  static constexpr const char* name = "rank";
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const {
    return Tensor::full({}, static_cast<double>(x.ndim()), DType::i64);
  }
};

TEST(OpStructs, WithIntegerOutputsCarryNoGraph) {
  EXPECT_FALSE(requires_grad(apply(Rank{}, leaf(1, {2, 2}))));
}

// --- Buffers to add into

// y = x. Notes what it is offered, and adds there.
struct Adds {
  static constexpr const char* name = "adds";
  struct Saved {};
  std::vector<const void*>* offered;
  Tensor forward(Saved&, const Tensor& x) const { return clone(x); }
  Tensor backward(const Saved&, const Tensor& dy, const GradRequest& r) const {
    Tensor buffer = r.accumulator(0);
    offered->push_back(buffer.defined() ? buffer.data<double>() : nullptr);
    if (!buffer.defined()) return clone(dy);
    accumulate(buffer, dy);
    return buffer;
  }
};

TEST(GradientBuffers, OfALeafAreOfferedOnceItHoldsAGradient) {
  const Tensor a = leaf(1);
  std::vector<const void*> offered;
  backward(apply(Adds{&offered}, a));
  const void* first = grad(a).data<double>();
  backward(plus(apply(Adds{&offered}, a), apply(Adds{&offered}, a)));
  EXPECT_EQ(offered, (std::vector<const void*>{nullptr, first, first}));
  EXPECT_EQ(grad(a).data<double>(), first) << "one buffer from the first to the last";
  EXPECT_EQ(grad(a).item(), 3.0);
}

TEST(GradientBuffers, OfAnInnerTensorAreOfferedToItsLaterConsumers) {
  const Tensor a = leaf(1);
  const Tensor b = same(a);
  std::vector<const void*> offered;
  const Tensor c = apply(Adds{&offered}, b);
  const Tensor d = apply(Adds{&offered}, b);
  backward(plus(plus(c, d), b));
  ASSERT_EQ(offered.size(), 2U);
  EXPECT_NE(offered[0], nullptr);
  EXPECT_EQ(offered[0], offered[1]);
  EXPECT_EQ(grad(a).item(), 3.0);
}

TEST(GradientBuffers, AreNotOfferedToALeafWithAHook) {
  const Tensor a = leaf(1);
  std::vector<const void*> offered;
  std::vector<double> seen;
  register_hook(a, [&](const Tensor& g) {
    seen.push_back(g.item());
    return Tensor();
  });
  backward(apply(Adds{&offered}, a));
  backward(apply(Adds{&offered}, a));
  EXPECT_EQ(offered, (std::vector<const void*>{nullptr, nullptr}));
  EXPECT_EQ(seen, (std::vector<double>{1, 1}));
  EXPECT_EQ(grad(a).item(), 2.0);
}

TEST(GradientBuffers, NeverHoldTheIncomingGradient) {
  const Tensor a = leaf(1, {2, 2});
  backward(same(a), Tensor::full({2, 2}, 5.0, DType::f64));
  std::vector<const void*> offered;
  backward(apply(Adds{&offered}, a), grad(a));  // the leaf's own gradient comes in
  EXPECT_EQ(offered, (std::vector<const void*>{nullptr}));
  EXPECT_EQ(grad(a).data<double>()[3], 10.0);
  backward(transpose(a, 0, 1), grad(a));
  EXPECT_EQ(grad(a).data<double>()[3], 20.0);
}

// A tied weight's gradient exists once, from the first use to the last and over steps. In f64,
// whose products take no scratch on any processor.
TEST(GradientBuffers, OfATiedWeightExistOnce) {
  constexpr std::int64_t kWidth = 256;
  Tensor w = Tensor::full({kWidth, kWidth}, 0.01, DType::f64);
  set_requires_grad(w);
  Tensor x = Tensor::full({2, kWidth}, 1.0, DType::f64);
  const auto step = [&] {
    Tensor h = x;
    for (int use = 0; use < 4; ++use) h = linear(h, w);
    backward(sum(h));
  };
  step();  // caches of the libraries are filled
  set_grad(w, {});
  Allocator& memory = allocator(kCpu);
  for (int i = 0; i < 2; ++i) {
    memory.reset_peak();
    const std::size_t before = memory.stats().allocated;
    step();
    const std::size_t extra = memory.stats().peak_allocated - before;
    const std::size_t one = w.nbytes();
    if (i == 0) {
      EXPECT_GE(extra, one);
      EXPECT_LT(extra, one + one / 4) << "one gradient and a few rows of activations";
    } else {
      EXPECT_LT(extra, one / 4) << "no second gradient when the first is there";
    }
  }
}

// --- Gradients that come in unusual layouts

TEST(GradOutputs, MayBeExpanded) {
  const Tensor a = leaf(2, {3, 4});
  const Tensor ones = Tensor::full({}, 1.0, DType::f64).expand_view({3, 4});
  backward(same(a), ones);
  ASSERT_TRUE(grad(a).defined());
  EXPECT_TRUE(grad(a).is_contiguous()) << "a leaf's gradient owns its elements";
  EXPECT_EQ(grad(a).data<double>()[11], 1.0);
  backward(plus(same(a), a), ones);
  EXPECT_EQ(grad(a).data<double>()[11], 3.0);
}

TEST(GradOutputs, AreNotWritten) {
  const Tensor a = leaf(2, {3});
  const Tensor g = Tensor::full({3}, 1.0, DType::f64);
  for (int i = 0; i < 2; ++i) backward(plus(plus(a, a), same(a)), g);
  EXPECT_EQ(g.data<double>()[0], 1.0);
  EXPECT_EQ(grad(a).data<double>()[0], 6.0);
  EXPECT_NE(grad(a).storage(), g.storage());
}

TEST(GradOutputs, OfALeafItself) {
  const Tensor a = leaf(2);
  backward(a);
  backward(a, Tensor::full({}, 2.5, DType::f64));
  EXPECT_EQ(grad(a).item(), 3.5);
}

struct Piece {
  static constexpr const char* name = "piece";
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const { return clone(x); }
  Tensor backward(const Saved&, const Tensor&) const {
    return Tensor::zeros({1000}, DType::f64).slice_view(0, 0, 1);
  }
};

TEST(GradOutputs, ASmallPieceDoesNotKeepABigBlock) {
  const Tensor a = leaf(1, {1});
  const Tensor big = Tensor::full({1000}, 1.0, DType::f64);
  backward(apply(Piece{}, a));
  EXPECT_EQ(grad(a).storage()->bytes(), sizeof(double));
}

}  // namespace
}  // namespace duet::test
