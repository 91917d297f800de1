// recompute: the same bits, less memory; nested; parameters that only the function knows.
#include "autograd/recompute.h"

#include <gtest/gtest.h>

#include <cstring>

#include "autograd/saved_tensor.h"
#include "ops/ops.h"
#include "tests/autograd/test_ops.h"

namespace duet::test {
namespace {

Tensor random(const Shape& shape, std::uint64_t seed) {
  Tensor t = Tensor::empty(shape, DType::f32);
  fill_normal(t, RandomKey{seed, 0, 0, kUseTest, 0}, 0, 1);
  set_requires_grad(t);
  return t;
}

// A residual block whose input is read three times: x + silu(x w) * x, with dropout.
struct Block {
  Tensor w = random({16, 16}, 1);
  Tensor bias = random({16}, 2);

  Tensor operator()(const Tensor& x, std::uint32_t layer) const {
    const Tensor h = mul(silu(add(linear(x, w), bias)), x);
    return add(x, dropout(h, 0.25, RandomKey{7, 1, layer, kUseDropoutMlp, 0}));
  }
};

struct Outcome {
  Tensor y;
  std::vector<Tensor> grads;
  std::size_t kept;  // bytes saved by the forward
};

enum class Mode { plain, each, nested };

// Two blocks that share their weights; the input is used outside as well.
Outcome run(Mode mode) {
  const Block block;
  const Tensor x = random({4, 16}, 3);
  const std::size_t before = saved_bytes();
  const auto once = [&](const Tensor& t, std::uint32_t layer) {
    if (mode == Mode::plain) return block(t, layer);
    return recompute("block",
                     [&block, layer](const std::vector<Tensor>& in) { return block(in[0], layer); },
                     {t});
  };
  const auto both = [&](const Tensor& t) { return once(once(t, 0), 1); };
  Tensor y =
      mode == Mode::nested
          ? recompute("both", [&](const std::vector<Tensor>& in) { return both(in[0]); }, {x})
          : both(x);
  y = mul(y, add(x, y));
  const std::size_t kept = saved_bytes() - before;
  backward(y, random(y.shape(), 4).detach());
  EXPECT_EQ(saved_bytes(), before);
  return {y, {grad(x), grad(block.w), grad(block.bias)}, kept};
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.data<float>(), b.data<float>(), a.nbytes()) == 0;
}

TEST(Recompute, GivesTheSameBits) {
  const Outcome plain = run(Mode::plain);
  for (const Mode mode : {Mode::each, Mode::nested}) {
    const Outcome other = run(mode);
    EXPECT_TRUE(same_bits(plain.y, other.y));
    for (std::size_t i = 0; i < plain.grads.size(); ++i) {
      EXPECT_TRUE(same_bits(plain.grads[i], other.grads[i])) << "gradient " << i;
    }
  }
}

TEST(Recompute, KeepsOnlyTheInputs) {
  const std::size_t activation = 4 * 16 * sizeof(float);
  const std::size_t outside = 2 * activation;  // mul keeps both operands
  EXPECT_GT(run(Mode::plain).kept, outside + 4 * activation);
  EXPECT_EQ(run(Mode::each).kept, outside + 2 * activation);
  EXPECT_EQ(run(Mode::nested).kept, outside + activation);
}

TEST(Recompute, PeakIsOneBlockNotAll) {
  const Tensor x = random({64, 64}, 1);
  const auto peak = [&](bool recomputed) {
    const auto block = [](const std::vector<Tensor>& in) {
      Tensor h = in[0];
      for (int i = 0; i < 8; ++i) h = silu(h);
      return h;
    };
    Allocator& memory = allocator(kCpu);
    memory.reset_peak();
    const std::size_t before = memory.stats().allocated;
    Tensor y = x;
    for (int i = 0; i < 8; ++i) y = recomputed ? recompute("silus", block, {y}) : block({y});
    backward(sum(y));
    return memory.stats().peak_allocated - before;
  };
  EXPECT_LT(peak(true), peak(false) / 2);
}

// A frozen input: the function's own parameter still gets its gradient.
TEST(Recompute, ReachesCapturedParametersWithoutADifferentiableInput) {
  const Tensor w = leaf(3);
  const Tensor x = Tensor::full({}, 2.0, DType::f64);
  const Tensor y =
      recompute("f", [&](const std::vector<Tensor>& in) { return mul(in[0], w); }, {x});
  backward(y);
  EXPECT_EQ(grad(w).item(), 2.0);
}

TEST(Recompute, UnderNoGradJustRuns) {
  const Tensor w = leaf(3);
  const NoGradGuard no_grad;
  const std::size_t before = saved_bytes();
  int calls = 0;
  const Tensor y = recompute("f",
                             [&](const std::vector<Tensor>& in) {
                               ++calls;
                               return mul(in[0], w);
                             },
                             {w});
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(requires_grad(y));
  EXPECT_EQ(saved_bytes(), before);
}

TEST(Recompute, WithSeveralInputsOneOfThemUnused) {
  const Tensor a = leaf(3), b = leaf(5), c = leaf(7);
  const Tensor ids = Tensor::full({2}, 1.0, DType::i64);
  backward(recompute("f",
                     [](const std::vector<Tensor>& in) {
                       EXPECT_EQ(in[3].dtype(), DType::i64);
                       EXPECT_FALSE(in[4].defined());
                       return mul(in[0], in[2]);
                     },
                     {a, b, c, ids, Tensor()}));
  EXPECT_EQ(grad(a).item(), 7.0);
  EXPECT_FALSE(grad(b).defined());
  EXPECT_EQ(grad(c).item(), 3.0);
}

TEST(Recompute, RefusesASecondBackwardAndAChangedInput) {
  Tensor a = leaf(3);
  const auto f = [](const std::vector<Tensor>& in) { return square(in[0]); };
  const Tensor y = recompute("f", f, {a});
  backward(y);
  EXPECT_NE(error_text([&] { backward(y); }).find("recompute: backward ran twice"),
            std::string::npos);
  const Tensor z = recompute("f", f, {a});
  fill(a, 4);
  EXPECT_NE(error_text([&] { backward(z); }).find("was modified in place"), std::string::npos);
}

struct Spy {
  static constexpr const char* name = "spy";
  struct Saved {};
  std::vector<std::string>* paths;
  Tensor forward(Saved&, const Tensor& x) const { return clone(x); }
  Tensor backward(const Saved&, const Tensor& dy) const {
    paths->push_back(scope_path(current_scope()));
    return dy;
  }
};

// Backward runs in the memory scope of the forward, in recomputed parts too.
TEST(Recompute, AndBackwardReenterTheScopeOfTheForward) {
  const Tensor a = leaf(3);
  std::vector<std::string> paths;
  Tensor y;
  {
    const MemoryScope model("model");
    {
      const MemoryScope first("first");
      y = apply(Spy{&paths}, a);
    }
    y = recompute("second",
                  [&](const std::vector<Tensor>& in) {
                    const MemoryScope inner("inner");
                    return apply(Spy{&paths}, in[0]);
                  },
                  {y});
  }
  {
    const MemoryScope elsewhere("elsewhere");
    backward(y);
    EXPECT_EQ(scope_path(current_scope()), "elsewhere");
  }
  EXPECT_EQ(paths, (std::vector<std::string>{"model.second.inner", "model.first"}));
}

}  // namespace
}  // namespace duet::test
