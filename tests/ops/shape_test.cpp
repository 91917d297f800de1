// Special cases of ops/shape: which calls are views, whole numbers, empty windows, gradients that
// meet in one buffer, refusals.
#include <gtest/gtest.h>

#include "autograd/node.h"
#include "ops/ops.h"
#include "runtime/memory_ops.h"
#include "tests/ops/harness.h"
#include "tests/ops/oracle.h"

namespace duet::test {
namespace {

bool shares(const Tensor& a, const Tensor& b) { return a.storage() == b.storage(); }

TEST(ReshapeOp, IsAViewWhereStridesAllow) {
  const Tensor x = random_integers({4, 6}, 1);
  EXPECT_TRUE(shares(reshape(x, {2, 2, 3, 2}), x));
  EXPECT_TRUE(shares(reshape(x.slice_view(0, 1, 3), {-1}), x));
  EXPECT_TRUE(shares(reshape(x.slice_view(1, 1, 5), {2, 2, 2, 2}), x)) << "splits of gapped rows";
  EXPECT_TRUE(shares(reshape(transpose(x, 0, 1), {2, 3, 4}), x)) << "a split of one turned dim";
  EXPECT_FALSE(shares(reshape(transpose(x, 0, 1), {24}), x));
  EXPECT_FALSE(shares(reshape(x.slice_view(1, 1, 5), {16}), x));
}

// Whatever the strides, reshape shows the elements in row-major order.
TEST(ReshapeOp, OfEveryLayoutEqualsTheReshapeOfACopy) {
  const Tensor base = random_integers({6, 4, 10}, 1);
  const Tensor layouts[] = {
      base,
      base.transpose_view(0, 1),
      base.transpose_view(1, 2),
      base.transpose_view(0, 2),
      base.slice_view(0, 0, 6, 2),
      base.slice_view(1, 1, 4, 2),
      base.slice_view(2, 3, 9),
      base.slice_view(2, 0, 10, 5),
      base.slice_view(1, 2, 3),
      base.slice_view(1, 2, 3).expand_view({6, 3, 10}),
      base.slice_view(2, 2, 3).expand_view({6, 4, 2}),
  };
  for (const Tensor& x : layouts) {
    const std::int64_t n = x.numel();
    std::vector<Shape> targets{{n}, {n, 1}, {1, n}};
    for (std::int64_t a = 1; a <= n; ++a) {
      if (n % a != 0) continue;
      targets.push_back({a, n / a});
      for (std::int64_t b = 1; b <= n / a; ++b) {
        if (n / a % b == 0) targets.push_back({a, b, n / a / b});
      }
    }
    for (const Shape& to : targets) {
      EXPECT_EQ(compare(concat(x.shape(), x.strides(), to), reshape(x, to),
                        clone(x).reshape_view(to), {}),
                "");
    }
  }
}

TEST(ReshapeOp, OfNothing) {
  const Tensor x = Tensor::empty({0, 3}, DType::f32);
  EXPECT_EQ(reshape(x, {3, 0}).shape(), (Shape{3, 0}));
  EXPECT_EQ(reshape(x, {-1, 3}).shape(), (Shape{0, 3}));
  EXPECT_EQ(reshape(x, {2, 0, 5}).shape(), (Shape{2, 0, 5}));
  EXPECT_EQ(reshape(transpose(x, 0, 1), {0}).shape(), (Shape{0}));
  EXPECT_EQ(reshape(Tensor::zeros({1, 1}, DType::f32), {}).shape(), Shape{});
}

TEST(ShapeOps, TakeAnyDtype) {
  const Tensor ids = convert(random_integers({3, 4}, 1), DType::i64);
  EXPECT_EQ(compare("transpose", transpose(ids, 0, 1), ids.transpose_view(0, 1), {}), "");
  EXPECT_EQ(reshape(ids, {12}).dtype(), DType::i64);
  EXPECT_EQ(cat({ids, ids}, 0).dtype(), DType::i64);
  EXPECT_EQ(slice(ids, 1, 1, 3).dtype(), DType::i64);
  EXPECT_FALSE(shares(contiguous(transpose(ids, 0, 1)), ids));
  EXPECT_TRUE(shares(contiguous(ids), ids));
}

TEST(SliceOp, MayBeEmpty) {
  Tensor x = random_integers({3, 8}, 1);
  set_requires_grad(x);
  const Tensor y = slice(x, 1, 4, 4);
  EXPECT_EQ(y.shape(), (Shape{3, 0}));
  backward(y, Tensor::empty({3, 0}, DType::f64));
  EXPECT_EQ(values(grad(x)), Values(24, 0.0));
}

// Windows of one tensor add their gradients in one buffer, those of a leaf and of an op's output.
TEST(SliceOp, GradientsOfWindowsMeetInOneBuffer) {
  constexpr std::int64_t kN = 1 << 16;
  Tensor w = Tensor::full({3, kN}, 1.0, DType::f32);
  set_requires_grad(w);
  for (const bool through_op : {false, true}) {
    set_grad(w, {});
    Allocator& memory = allocator(kCpu);
    const Tensor g = Tensor::full({1, kN}, 2.0, DType::f32);
    memory.reset_peak();
    const std::size_t before = memory.stats().allocated;
    {
      const Tensor x = through_op ? transpose(transpose(w, 0, 1), 0, 1) : w;
      const Tensor q = slice(x, 0, 0, 1), k = slice(x, 0, 1, 2), v = slice(x, 0, 2, 3);
      backward(weighted_sum({q, k, v}, {g, g, g}));
    }
    const std::size_t extra = memory.stats().peak_allocated - before;
    EXPECT_EQ(values(grad(w)), Values(3 * kN, 2.0));
    EXPECT_LT(extra, 5 * g.nbytes())
        << "one gradient of w, three times g; two of them would be six";
  }
}

TEST(CatOp, OfEmptyPartsAndOfOne) {
  Tensor a = random_integers({2, 3}, 1), none = Tensor::empty({2, 0}, DType::f64);
  set_requires_grad(a);
  set_requires_grad(none);
  const Tensor y = cat({none, a, none}, 1);
  EXPECT_EQ(values(y), values(a));
  backward(sum(y));
  EXPECT_EQ(grad(none).shape(), (Shape{2, 0}));
  EXPECT_EQ(values(grad(a)), Values(6, 1.0));
  EXPECT_EQ(values(cat({a}, 0)), values(a));
  EXPECT_FALSE(shares(cat({a}, 0), a));
}

TEST(ShapeOps, RefusalsSayWhatIsWrong) {
  const Tensor x = Tensor::zeros({3, 8}, DType::f32);
  const auto text = [](const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(text([&] {
              reshape(x, {5, 5});
            }),
            "reshape: element counts differ: got [3, 8] (24), expected [5, 5] (25)");
  EXPECT_EQ(text([&] {
              reshape(x, {-1, 5});
            }),
            "reshape: the size for -1 does not come out whole: got [3, 8] (24 elements), expected "
            "a multiple of 5 for [-1, 5]");
  EXPECT_EQ(text([&] {
              reshape(x, {-1, -1});
            }),
            "reshape: more than one size is -1: got [-1, -1], expected at most one");
  EXPECT_EQ(text([&] {
              reshape(x, {-2, 12});
            }),
            "reshape: a size is negative: got [-2, 12], expected sizes of 0 or more, and at most "
            "one -1");
  EXPECT_EQ(text([&] {
              reshape(Tensor::zeros({0}, DType::f32), {-1, 0});
            }),
            "reshape: the size for -1 does not come out whole: got [0] (0 elements), expected a "
            "multiple of 0 for [-1, 0]");
  EXPECT_EQ(text([&] { transpose(x, 0, 2); }),
            "transpose: dim 2 is out of range for a 2-d tensor (valid: -2..1)");
  EXPECT_EQ(text([&] { slice(x, 1, 3, 9); }),
            "slice: range does not fit: got [3, 9) step 1 in dim 1 of [3, 8], expected 0 <= begin "
            "<= end <= 8 and step >= 1");
  EXPECT_NE(text([&] { slice(x, 1, 0, 8, 0); }), "");
  EXPECT_EQ(text([&] { cat({}, 0); }), "cat: got no parts, expected at least one");
  EXPECT_EQ(text([&] {
              cat({x, Tensor::zeros({3, 7}, DType::f32)}, 0);
            }),
            "cat: parts[1] is [3, 7], parts[0] is [3, 8]; expected equal sizes but in dim 0");
  EXPECT_EQ(text([&] {
              cat({x, Tensor::zeros({3}, DType::f32)}, 0);
            }),
            "cat: parts[1] is [3], parts[0] is [3, 8]; expected equal sizes but in dim 0");
  EXPECT_EQ(text([&] { reshape(Tensor(), {1}); }),
            "reshape: x is an undefined tensor; expected one with values");
}

}  // namespace
}  // namespace duet::test
