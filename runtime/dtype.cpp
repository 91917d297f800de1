#include "runtime/dtype.h"

#include <bit>

namespace duet {

std::string_view name(DType t) {
  switch (t) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
  }
  return "?";
}

std::size_t size_of(DType t) {
  return visit_any(t, []<class T>(TypeTag<T>) { return sizeof(T); });
}

BFloat16::BFloat16(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  if ((u & 0x7fffffffU) > 0x7f800000U) {  // NaN: keep it quiet, never round it to infinity
    bits = static_cast<std::uint16_t>((u >> 16) | 0x40U);
  } else {
    bits = static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
  }
}

BFloat16::operator float() const {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

Float16::Float16(float value) {
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
  bits = static_cast<std::uint16_t>(sign | half);
}

Float16::operator float() const {
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

}  // namespace duet
