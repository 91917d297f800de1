// Conversions between element types, the same bits on every device.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "runtime/dtype.h"

namespace duet {

DUET_HD inline std::uint16_t bfloat16_bits(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  if ((u & 0x7fffffffU) > 0x7f800000U) {  // NaN: keep it quiet, never round it to infinity
    return static_cast<std::uint16_t>((u >> 16) | 0x40U);
  }
  return static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
}

DUET_HD inline float bfloat16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

DUET_HD inline std::uint16_t float16_bits(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (u >> 16) & 0x8000U;
  const std::uint32_t magnitude = u & 0x7fffffffU;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000U) {
    half = 0x7e00U;                       // NaN
  } else if (magnitude >= 0x477ff000U) {  // rounds to 65536 or more
    half = 0x7c00U;
  } else if (magnitude >= 0x38800000U) {  // normal: rebias the exponent, round 13 bits away
    half = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  } else if (magnitude > 0x33000000U) {  // subnormal: shift the significand into place
    const std::uint32_t shift = 126U - (magnitude >> 23);
    const std::uint32_t significand = (magnitude & 0x7fffffU) | 0x800000U;
    const std::uint32_t rest = significand & ((1U << shift) - 1U);
    const std::uint32_t tie = 1U << (shift - 1U);
    half = significand >> shift;
    if (rest > tie || (rest == tie && (half & 1U))) ++half;
  }
  return static_cast<std::uint16_t>(sign | half);
}

DUET_HD inline float float16_value(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t significand = bits & 0x3ffU;
  if (exponent == 0) {  // zero or subnormal: significand * 2^-24 is exact in float
    const float value = static_cast<float>(significand) * 0x1p-24F;
    return sign ? -value : value;
  }
  const std::uint32_t e = exponent == 31U ? 255U : exponent + 112U;
  return std::bit_cast<float>(sign | (e << 23) | (significand << 13));
}

// The nearest float towards zero, with its last bit set if that lost anything ("round to odd"):
// rounding it again, to 16 bits, then gives what rounding the double once would.
DUET_HD inline float to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto back = static_cast<double>(nearest);
  if (back == value || value != value) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if ((back < 0 ? -back : back) > (value < 0 ? -value : value)) --bits;
  return std::bit_cast<float>(bits | 1U);
}

// Conversions round to nearest, ties to even. To an integer they cut towards zero and saturate; NaN
// becomes 0.
template <class To, class From>
DUET_HD To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, BFloat16>) {
    return convert<To>(bfloat16_value(value.bits));
  } else if constexpr (std::is_same_v<From, Float16>) {
    return convert<To>(float16_value(value.bits));
  } else if constexpr (std::is_class_v<To>) {
    float narrow;
    if constexpr (std::is_same_v<From, float>) {
      narrow = value;
    } else {
      narrow = to_odd(static_cast<double>(value));
    }
    To out;
    out.bits = std::is_same_v<To, BFloat16> ? bfloat16_bits(narrow) : float16_bits(narrow);
    return out;
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    const auto wide = static_cast<double>(value);
    constexpr auto kLow = static_cast<double>(std::numeric_limits<To>::min());
    // NOLINTNEXTLINE(bugprone-integer-division): max is odd, so half of max + 1 is exact
    constexpr double kEnd = 2.0 * static_cast<double>(std::numeric_limits<To>::max() / 2 + 1);
    if (wide >= kEnd) return std::numeric_limits<To>::max();
    return wide > kLow - 1 ? static_cast<To>(wide)
           : wide <= kLow  ? std::numeric_limits<To>::min()
                           : To{};
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace duet
