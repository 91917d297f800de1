// Philox against the published vectors; streams that do not depend on threads or on each other.
#include "runtime/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "runtime/cpu/parallel.h"
#include "runtime/tensor.h"
#include "tests/runtime/errors.h"

namespace duet::test {
namespace {

using Words = std::array<std::uint32_t, 4>;

Words philox(Words counter, std::uint32_t key0, std::uint32_t key1) {
  detail::philox4x32(counter.data(), key0, key1);
  return counter;
}

// From kat_vectors of the Random123 distribution.
TEST(Random, PhiloxKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0U, ~0U, ~0U, ~0U}, ~0U, ~0U),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, EveryFieldOfTheKeyCounts) {
  const RandomKey base{1, 2, 3, 4, 5};
  std::vector<RandomKey> keys(7, base);
  keys[1].seed = 2;
  keys[2].seed = 1 + (std::uint64_t{1} << 32);
  keys[3].step = 3;
  keys[4].layer = 4;
  keys[5].use = 5;
  keys[6].micro = 6;
  std::set<std::uint32_t> seen;
  for (const RandomKey& key : keys) {
    for (std::uint64_t i = 0; i < 8; ++i) seen.insert(random_u32(key, i));
  }
  EXPECT_EQ(seen.size(), keys.size() * 8);
  std::uint32_t block[4];
  random_block(base, 3, block);
  EXPECT_EQ(random_u32(base, 13), block[1]);
}

TEST(Random, UnitStaysBelowOne) {
  EXPECT_EQ(to_unit(0), 0.0F);
  EXPECT_LT(to_unit(~0U), 1.0F);
  EXPECT_EQ(to_unit(1U << 31), 0.5F);
}

std::vector<double> normal(std::int64_t n, const RandomKey& key, DType dtype = DType::f64) {
  Tensor t = Tensor::empty({n}, dtype);
  fill_normal(t, key, 1.0, 2.0);
  std::vector<double> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(t.slice_view(0, i, i + 1).item());
  return out;
}

TEST(Random, NormalHasItsMomentsAndIsAPrefix) {
  const std::int64_t n = 100'001;  // odd, and more than one thread's piece
  const auto x = normal(n, {7});
  double mean = 0, square = 0, fourth = 0;
  for (const double v : x) mean += (v - 1) / 2 / static_cast<double>(n);
  for (const double v : x) {
    const double z = (v - 1) / 2;
    square += z * z / static_cast<double>(n);
    fourth += z * z * z * z / static_cast<double>(n);
  }
  EXPECT_NEAR(mean, 0, 0.015);  // about 4 standard errors each
  EXPECT_NEAR(square, 1, 0.02);
  EXPECT_NEAR(fourth, 3, 0.15);
  const auto prefix = normal(777, {7});
  EXPECT_TRUE(std::equal(prefix.begin(), prefix.end(), x.begin()));
  const auto floats = normal(777, {7}, DType::f32);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    ASSERT_EQ(static_cast<float>(floats[i]), static_cast<float>(x[i]));
  }
}

TEST(Random, BitsDoNotDependOnThreads) {
  const int threads = num_threads();
  set_num_threads(1);
  const auto one = normal(50'000, {9});
  set_num_threads(3);
  const auto three = normal(50'000, {9});
  set_num_threads(threads);
  EXPECT_EQ(one, three);
}

TEST(Random, UniformFillsItsRange) {
  Tensor t = Tensor::empty({40'001}, DType::f64);
  fill_uniform(t, {3}, -2, 6);
  const double* p = t.data<double>();
  double low = 1e9, high = -1e9, mean = 0;
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    low = std::min(low, p[i]);
    high = std::max(high, p[i]);
    mean += p[i] / static_cast<double>(t.numel());
  }
  EXPECT_GE(low, -2.0);
  EXPECT_LT(low, -1.99);
  EXPECT_LT(high, 6.0);
  EXPECT_GT(high, 5.99);
  EXPECT_NEAR(mean, 2, 0.05);
}

TEST(Random, RefusesWhatItCannotFill) {
  Tensor gaps = Tensor::empty({4, 4}, DType::f32).slice_view(1, 0, 2);
  expect_in("the tensor has gaps",
            error_of(ErrorKind::shape, [&] { fill_normal(gaps, {}, 0, 1); }));
  Tensor ints = Tensor::empty({4}, DType::i32);
  error_of(ErrorKind::dtype, [&] { fill_uniform(ints, {}, 0, 1); });
  Tensor planned = Tensor::empty({1 << 20, 1 << 10}, DType::f32, kMeta);
  fill_normal(planned, {}, 0, 1);
  Tensor none = Tensor::empty({0}, DType::f32);
  fill_normal(none, {}, 0, 1);
}

}  // namespace
}  // namespace duet::test
