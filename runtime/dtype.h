// Element types. f32 and f64 compute; bf16 and f16 are storage; i32, i64, u8 hold ids and bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/error.h"

// Marks a function that both the host and the device compiler must see.
#if defined(__CUDACC__)
#define DUET_HD __host__ __device__
#else
#define DUET_HD
#endif

namespace duet {

enum class DType : std::uint8_t { f32, f64, bf16, f16, i32, i64, u8 };

std::string_view name(DType t);  // "f32", ...
std::size_t size_of(DType t);    // bytes per element
inline bool is_floating(DType t) { return t <= DType::f16; }
inline std::ostream& operator<<(std::ostream& out, DType t) { return out << name(t); }

// bfloat16 as bits: the upper half of a float. Rounds to nearest, ties to even; NaN stays NaN.
struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value);
  explicit operator float() const;
};

// IEEE 754 binary16 as bits; overflow gives infinity, subnormals are kept.
struct Float16 {
  std::uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
};

template <class T>
struct TypeTag {
  using type = T;
};

template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "no DType for this C++ type");
  return DType::f32;
}();
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<Float16> = DType::f16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;

// Calls f with the C++ type of a computing dtype (f32, f64):
//   visit_floating(x.dtype(), "silu", [&]<class T>(TypeTag<T>) { ... });
// Throws Error(dtype) naming the op for any other.
template <class F>
decltype(auto) visit_floating(DType dtype, const char* op, F&& f) {
  switch (dtype) {
    case DType::f32:
      return std::forward<F>(f)(TypeTag<float>{});
    case DType::f64:
      return std::forward<F>(f)(TypeTag<double>{});
    default:
      throw Error(ErrorKind::dtype, concat(op, ": dtype is not supported: got ", dtype,
                                           ", expected f32 or f64; convert the tensor first"));
  }
}

// Calls f with the C++ type of any dtype.
template <class F>
decltype(auto) visit_any(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return std::forward<F>(f)(TypeTag<float>{});
    case DType::f64:
      return std::forward<F>(f)(TypeTag<double>{});
    case DType::bf16:
      return std::forward<F>(f)(TypeTag<BFloat16>{});
    case DType::f16:
      return std::forward<F>(f)(TypeTag<Float16>{});
    case DType::i32:
      return std::forward<F>(f)(TypeTag<std::int32_t>{});
    case DType::i64:
      return std::forward<F>(f)(TypeTag<std::int64_t>{});
    case DType::u8:
      return std::forward<F>(f)(TypeTag<std::uint8_t>{});
  }
  throw Error(ErrorKind::internal, "visit_any: not a dtype");
}

}  // namespace duet
