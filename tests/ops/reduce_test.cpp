// Special cases of ops/reduce: long sums in f32, every layout, nothing to add, refusals.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/node.h"
#include "ops/ops.h"
#include "tests/ops/harness.h"
#include "tests/ops/oracle.h"

namespace duet::test {
namespace {

TEST(Reduce, LongSumsInF32AreRightToTheLastBits) {
  for (const std::int64_t n : {7, 4096, 100'003, 3'000'001}) {
    const Tensor x = Tensor::full({n}, static_cast<double>(0.1F), DType::f32);
    const double want = static_cast<double>(0.1F) * static_cast<double>(n);
    EXPECT_NEAR(sum(x).item() / want, 1, 1.2e-7) << n;
    EXPECT_NEAR(mean(x).item() / static_cast<double>(0.1F), 1, 2.4e-7) << n;
  }
}

TEST(Reduce, WhatCancelsLeavesTheRest) {
  constexpr std::int64_t kN = 50'000;
  Values x;
  for (std::int64_t i = 0; i < kN; ++i) x.push_back(i % 2 == 0 ? 1e6 : -1e6);
  x.push_back(0.25);
  const Tensor t = convert(tensor_of({kN + 1}, x), DType::f32);
  EXPECT_EQ(sum(t).item(), 0.25);
}

TEST(Reduce, EveryLayoutGivesTheSameSum) {
  const Tensor x = random_integers({129, 7, 260}, 3);
  const Tensor f = convert(x, DType::f32);
  for (const Tensor& t : {x, f}) {
    for (const std::vector<int>& dims :
         std::vector<std::vector<int>>{{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}, {}}) {
      const Tensor want = sum(convert(t, DType::f64), dims);
      EXPECT_EQ(compare("contiguous", sum(t, dims), want, {}), "");
      // The same elements with the memory of dims 0 and 2 swapped.
      const Tensor turned = contiguous(t.transpose_view(0, 2)).transpose_view(0, 2);
      EXPECT_EQ(compare("turned", sum(turned, dims), want, {}), "");
    }
  }
  const Tensor one = Tensor::full({1}, 3.0, DType::f32).expand_view({500, 300});
  EXPECT_EQ(sum(one).item(), 450'000.0);
  EXPECT_EQ(sum(one, {0}).shape(), (Shape{300}));
  EXPECT_EQ(values(sum(one, {0}))[299], 1500.0);
}

TEST(Reduce, NothingToAdd) {
  EXPECT_EQ(sum(Tensor::empty({0, 3}, DType::f32)).item(), 0.0);
  EXPECT_EQ(values(sum(Tensor::empty({0, 3}, DType::f32), {0})), (Values{0, 0, 0}));
  EXPECT_EQ(sum(Tensor::empty({0, 3}, DType::f32), {1}).shape(), (Shape{0}));
  EXPECT_EQ(sum(Tensor::empty({2, 0}, DType::f32), {1}, true).shape(), (Shape{2, 1}));
  Tensor x = Tensor::empty({0, 3}, DType::f64);
  set_requires_grad(x);
  backward(sum(x));
  EXPECT_EQ(grad(x).shape(), (Shape{0, 3}));
  EXPECT_THROW(mean(x), Error);
  try {
    mean(x);
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "mean: the tensor is empty: got [0, 3], expected at least one element");
    EXPECT_EQ(e.kind(), ErrorKind::shape);
  }
}

TEST(Reduce, NonFiniteElementsAreNotLost) {
  const double inf = INFINITY;
  EXPECT_EQ(sum(convert(tensor_of({3}, {1, inf, 2}), DType::f32)).item(), inf);
  EXPECT_TRUE(std::isnan(sum(convert(tensor_of({3}, {-inf, inf, 2}), DType::f32)).item()));
  EXPECT_TRUE(std::isnan(sum(convert(tensor_of({3}, {1, std::nan(""), 2}), DType::f32)).item()));
}

TEST(Reduce, RefusalsNameTheDim) {
  const Tensor x = Tensor::zeros({2, 3}, DType::f32);
  const auto text = [&](const std::vector<int>& dims) {
    try {
      sum(x, dims);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(text({2}), "sum: dim 2 is out of range for a 2-d tensor (valid: -2..1)");
  EXPECT_EQ(text({0, -2}), "sum: dim -2 is named twice; name each dim once");
}

}  // namespace
}  // namespace duet::test
