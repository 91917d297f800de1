// Vectorised f32 loops over contiguous elements (Highway, the best instruction set found at run
// time). An element's bits do not depend on where in the loop it lies.
#pragma once

#include <cstdint>
#include <type_traits>

namespace duet {

void add_f32(const float* a, const float* b, float* y, std::int64_t n);
void sub_f32(const float* a, const float* b, float* y, std::int64_t n);
void mul_f32(const float* a, const float* b, float* y, std::int64_t n);
void scale_f32(const float* x, float factor, float* y, std::int64_t n);

// Whether an op names a body for f32 rows, told from the constant itself: under a sanitizer g++
// does not know at compile time that the address of a function is not null.
template <auto kBody>
inline constexpr bool kHasBody = !std::is_same_v<std::integral_constant<decltype(kBody), kBody>,
                                                 std::integral_constant<decltype(kBody), nullptr>>;

// y = f(x)
using UnaryF32 = void (*)(const float* x, float* y, std::int64_t n);
void silu_f32(const float* x, float* y, std::int64_t n);
void gelu_f32(const float* x, float* y, std::int64_t n);
void gelu_tanh_f32(const float* x, float* y, std::int64_t n);

// dx = f'(x) * dy
using UnaryGradF32 = void (*)(const float* x, const float* dy, float* dx, std::int64_t n);
void silu_grad_f32(const float* x, const float* dy, float* dx, std::int64_t n);
void gelu_grad_f32(const float* x, const float* dy, float* dx, std::int64_t n);
void gelu_tanh_grad_f32(const float* x, const float* dy, float* dx, std::int64_t n);

// y = silu(gate) * up, and its two gradients
void swiglu_f32(const float* gate, const float* up, float* y, std::int64_t n);
void swiglu_grad_f32(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                     std::int64_t n);

}  // namespace duet
