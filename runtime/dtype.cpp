#include "runtime/dtype.h"

#include "runtime/convert.h"

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

BFloat16::BFloat16(float value) : bits(bfloat16_bits(value)) {}
BFloat16::operator float() const { return bfloat16_value(bits); }

Float16::Float16(float value) : bits(float16_bits(value)) {}
Float16::operator float() const { return float16_value(bits); }

}  // namespace duet
