// Kernels of two operands: out = f(a, b), both broadcast to out's shape beforehand (stride 0).
#pragma once

#include <type_traits>

#include "ops/pointwise/elementwise.h"
#include "ops/pointwise/pointwise_cpu.h"
#include "ops/pointwise/strided_loop.h"
#include "runtime/kernel_table.h"
#include "runtime/tensor.h"

namespace duet {

struct BinaryKernels {
  void (*forward)(ConstView a, ConstView b, View y);
};

using BinaryF32 = void (*)(const float* a, const float* b, float* y, std::int64_t n);

// F: name, f(a, b), and vector_f for contiguous f32 rows (or nullptr).
template <class F>
void binary_cpu_forward(ConstView a, ConstView b, View y) {
  visit_floating(y.dtype, F::name, [&]<class T>(TypeTag<T>) {
    parallel_rows<3>(y.shape, {a.strides, b.strides, y.strides},
                     [&](const auto& at, std::int64_t n, const auto& step, std::int64_t) {
                       const T* pa = a.as<T>() + at[0];
                       const T* pb = b.as<T>() + at[1];
                       T* py = y.as<T>() + at[2];
                       if constexpr (std::is_same_v<T, float> && kHasBody<F::vector_f>) {
                         if (step[0] == 1 && step[1] == 1 && step[2] == 1) {
                           return F::vector_f(pa, pb, py, n);
                         }
                       }
                       for (std::int64_t i = 0; i < n; ++i) {
                         py[i * step[2]] = F::f(pa[i * step[0]], pb[i * step[1]]);
                       }
                     });
  });
}

template <class F>
inline constexpr BinaryKernels binary_cpu{binary_cpu_forward<F>};

template <class F>
struct BinaryBody : ElementwiseBody<2, 1> {
  template <int kWidth>
  DUET_HD void operator()(std::int64_t, const float (&in)[2][kWidth],
                          float (&out)[1][kWidth]) const {
    for (int i = 0; i < kWidth; ++i) out[0][i] = F::f(in[0][i], in[1][i]);
  }
};
template <class F>
void binary_cuda_forward(ConstView a, ConstView b, View y) {
  elementwise(BinaryBody<F>{}, y.shape, {a, b}, {y});
}

template <class F>
inline constexpr BinaryKernels binary_cuda{binary_cuda_forward<F>};

// f(a, b) in the shape that both broadcast to. Outside autograd.
template <class F>
Tensor binary(const Tensor& a, const Tensor& b, const Shape& shape) {
  static constexpr KernelTable<BinaryKernels> kernels{F::name, &binary_cpu<F>,
                                                      device_table(binary_cuda<F>)};
  Tensor y = Tensor::empty(shape, a.dtype(), a.device());
  kernels.launch(y.device(), &BinaryKernels::forward, a.expand_view(shape).view(),
                 b.expand_view(shape).view(), y.mutable_view());
  return y;
}

}  // namespace duet
