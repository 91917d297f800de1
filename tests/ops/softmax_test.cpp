// softmax at its edges: -inf, +inf, NaN, logits at the ends of the range of float.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "autograd/node.h"
#include "ops/ops.h"

namespace duet::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor row_of(const std::vector<float>& values) {
  Tensor t = Tensor::empty({static_cast<std::int64_t>(values.size())}, DType::f32);
  std::copy(values.begin(), values.end(), t.mutable_data<float>());
  return t;
}

// 19 entries: two vectors of 8 and a tail, with -inf in each.
TEST(Softmax, MinusInfinityGivesExactZerosAndZeroGradients) {
  std::vector<float> values(19);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.25F;
  for (const std::size_t i : {0, 5, 9, 17, 18}) values[i] = -kInf;
  Tensor x = row_of(values);
  set_requires_grad(x);
  const Tensor y = softmax(x);
  backward(y, Tensor::full(y.shape(), 0.5, DType::f32));
  double total = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float p = y.data<float>()[i], g = grad(x).data<float>()[i];
    total += p;
    if (values[i] == -kInf) {
      EXPECT_EQ(p, 0) << i;
      EXPECT_EQ(g, 0) << i;
    } else {
      EXPECT_GT(p, 0) << i;
      EXPECT_NEAR(g, 0, 1e-7) << i;  // a constant cotangent moves nothing
    }
  }
  EXPECT_NEAR(total, 1, 1e-6);
}

TEST(Softmax, EndsOfTheRange) {
  const float big = 3e38F;
  for (const std::vector<float>& values :
       std::vector<std::vector<float>>{{1e4F, 1e4F}, {-1e4F, -1e4F}, {big, big}, {-big, -big}}) {
    const Tensor y = softmax(row_of(values));
    EXPECT_EQ(y.data<float>()[0], 0.5F);
    EXPECT_EQ(y.data<float>()[1], 0.5F);
  }
  const Tensor far = softmax(row_of({big, 0, -big}));
  EXPECT_EQ(far.data<float>()[0], 1.0F);
  EXPECT_EQ(far.data<float>()[1], 0.0F);
  EXPECT_EQ(far.data<float>()[2], 0.0F);
}

TEST(Softmax, NotANumberIsNeverHidden) {
  for (const std::size_t at : {0, 3, 17}) {
    for (const float bad : {std::nanf(""), kInf}) {
      std::vector<float> values(18, 0.5F);
      values[at] = bad;
      EXPECT_TRUE(std::isnan(softmax(row_of(values)).data<float>()[at])) << at << ' ' << bad;
    }
  }
  const Tensor nothing = softmax(row_of(std::vector<float>(18, -kInf)));
  for (int i = 0; i < 18; ++i) EXPECT_TRUE(std::isnan(nothing.data<float>()[i]));
}

TEST(Softmax, OnlyTheLastDim) {
  const Tensor x = Tensor::zeros({2, 3}, DType::f32);
  EXPECT_NO_THROW(softmax(x, 1));
  try {
    softmax(x, 0);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "softmax: dim is not the last one: got 0 of [2, 3], expected -1; transpose the "
                 "input first");
  }
}

}  // namespace
}  // namespace duet::test
