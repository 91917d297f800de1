// bf16 and f16: every pattern, every rounding case.
#include "runtime/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace duet::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

template <class T>
T from_bits(std::uint32_t bits) {
  T t;
  t.bits = static_cast<std::uint16_t>(bits);
  return t;
}
template <class T>
float value_of(std::uint32_t bits) {
  return static_cast<float>(from_bits<T>(bits));
}

template <class T>
class HalfTypes : public testing::Test {};
using Halves = testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(HalfTypes, Halves);

TYPED_TEST(HalfTypes, EveryPatternRoundTrips) {
  int nans = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = value_of<TypeParam>(bits);
    if (std::isnan(value)) {
      ++nans;
      EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(value))));
      EXPECT_EQ(TypeParam(value).bits >> 15, bits >> 15);  // the sign stays
    } else {
      ASSERT_EQ(TypeParam(value).bits, bits);
    }
  }
  EXPECT_EQ(nans, (std::is_same_v<TypeParam, BFloat16> ? 2 * 127 : 2 * 1023));
}

// Between any two neighbours: the middle goes to the even one, all else to the nearer one.
TYPED_TEST(HalfTypes, RoundsToNearestTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7fff; ++bits) {
    const float low = value_of<TypeParam>(bits), high = value_of<TypeParam>(bits + 1);
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const float middle = low + (high - low) / 2;  // exact: one more bit than the type has
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(TypeParam(middle).bits, even) << bits;
    ASSERT_EQ(TypeParam(std::nextafter(middle, kInf)).bits, bits + 1) << bits;
    ASSERT_EQ(TypeParam(std::nextafter(middle, 0.0F)).bits, bits) << bits;
    ASSERT_EQ(TypeParam(-middle).bits, even | 0x8000U) << bits;
  }
}

TYPED_TEST(HalfTypes, OverflowIsInfinity) {
  std::uint32_t inf = 0x8000;  // the first pattern that is infinite
  while (inf > 0 && !std::isfinite(value_of<TypeParam>(inf - 1))) --inf;
  const float largest = value_of<TypeParam>(inf - 1);
  const float half_step = (largest - value_of<TypeParam>(inf - 2)) / 2;
  EXPECT_EQ(TypeParam(kInf).bits, inf);
  EXPECT_EQ(TypeParam(largest + half_step).bits, inf);  // the tie to "even" is infinity
  EXPECT_EQ(TypeParam(std::nextafter(largest + half_step, 0.0F)).bits, inf - 1);
  EXPECT_EQ(TypeParam(-std::numeric_limits<float>::max()).bits, inf | 0x8000U);
}

TEST(HalfTypes, KnownValues) {
  EXPECT_EQ(BFloat16(1.0F).bits, 0x3f80);
  EXPECT_EQ(BFloat16(-2.5F).bits, 0xc020);
  EXPECT_EQ(Float16(1.0F).bits, 0x3c00);
  EXPECT_EQ(Float16(65504.0F).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0F).bits, 0x7c00);
  EXPECT_EQ(Float16(0x1p-24F).bits, 0x0001);  // the smallest subnormal
  EXPECT_EQ(Float16(0x1p-25F).bits, 0x0000);  // a tie, to even
  EXPECT_EQ(Float16(0x1.8p-25F).bits, 0x0001);
  EXPECT_EQ(Float16(1e-30F).bits, 0x0000);
  EXPECT_EQ(Float16(-0.0F).bits, 0x8000);
  EXPECT_EQ(value_of<BFloat16>(0x0001), 0x1p-133F);
  // NaNs whose payload lies below the kept bits must not turn into infinity.
  const float quiet = std::nanf("1");
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(quiet))));
}

TEST(DType, NamesAndSizes) {
  std::string names;
  std::size_t bytes = 0;
  for (const DType t :
       {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8}) {
    names += std::string(name(t)) + " ";
    bytes = bytes * 10 + size_of(t);
  }
  EXPECT_EQ(names, "f32 f64 bf16 f16 i32 i64 u8 ");
  EXPECT_EQ(bytes, 4822481U);
  try {
    visit_floating(DType::i32, "silu", [](auto) {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "silu: dtype is not supported: got i32, expected f32 or f64; convert the tensor "
                 "first");
  }
}

}  // namespace
}  // namespace duet::test
