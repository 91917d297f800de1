// Turns a struct of scalar functions into a differentiable op:
//
//   struct Square {
//     static constexpr const char* name = "square";
//     template <class T> DUET_HD static T f(T x) { return x * x; }
//     template <class T> DUET_HD static T df(T x) { return T(2) * x; }
//     static constexpr UnaryF32 vector_f = nullptr;   // f32 bodies for contiguous rows, if any
//     static constexpr UnaryGradF32 vector_df = nullptr;
//   };
//   Tensor square(const Tensor& x) { return pointwise<Square>(x); }
//
// The second derivative comes from df on a dual number, so df must take one: call functions as
// `using std::exp; exp(x)` (dual.h has those of duals), write constants T(0.5), branch by ?:.
#pragma once

#include <cmath>
#include <type_traits>

#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "ops/ops.h"
#include "ops/pointwise/dual.h"
#include "ops/pointwise/elementwise.h"
#include "ops/pointwise/pointwise_cpu.h"
#include "ops/pointwise/pointwise_kernels.h"
#include "ops/pointwise/strided_loop.h"
#include "runtime/kernel_table.h"

namespace duet {

template <class F>
void pointwise_forward_cpu(ConstView x, View y) {
  visit_floating(x.dtype, F::name, [&]<class T>(TypeTag<T>) {
    parallel_rows<2>(y.shape, {x.strides, y.strides},
                     [&](const auto& at, std::int64_t n, const auto& step, std::int64_t) {
                       const T* px = x.as<T>() + at[0];
                       T* py = y.as<T>() + at[1];
                       if constexpr (std::is_same_v<T, float> && kHasBody<F::vector_f>) {
                         if (step[0] == 1 && step[1] == 1) return F::vector_f(px, py, n);
                       }
                       for (std::int64_t i = 0; i < n; ++i) py[i * step[1]] = F::f(px[i * step[0]]);
                     });
  });
}

template <class F>
void pointwise_backward_cpu(ConstView x, ConstView dy, View dx) {
  visit_floating(x.dtype, F::name, [&]<class T>(TypeTag<T>) {
    parallel_rows<3>(dx.shape, {x.strides, dy.strides, dx.strides},
                     [&](const auto& at, std::int64_t n, const auto& step, std::int64_t) {
                       const T* px = x.as<T>() + at[0];
                       const T* pdy = dy.as<T>() + at[1];
                       T* pdx = dx.as<T>() + at[2];
                       if constexpr (std::is_same_v<T, float> && kHasBody<F::vector_df>) {
                         if (step[0] == 1 && step[1] == 1 && step[2] == 1)
                           return F::vector_df(px, pdy, pdx, n);
                       }
                       for (std::int64_t i = 0; i < n; ++i) {
                         pdx[i * step[2]] = F::df(px[i * step[0]]) * pdy[i * step[1]];
                       }
                     });
  });
}

template <class F>
inline constexpr PointwiseKernels pointwise_cpu{pointwise_forward_cpu<F>,
                                                pointwise_backward_cpu<F>};

template <class F>
struct PointwiseForwardBody : ElementwiseBody<1, 1> {
  template <int kWidth>
  DUET_HD void operator()(std::int64_t, const float (&in)[1][kWidth],
                          float (&out)[1][kWidth]) const {
    for (int i = 0; i < kWidth; ++i) out[0][i] = F::f(in[0][i]);
  }
};
template <class F>
struct PointwiseBackwardBody : ElementwiseBody<2, 1> {
  template <int kWidth>
  DUET_HD void operator()(std::int64_t, const float (&in)[2][kWidth],
                          float (&out)[1][kWidth]) const {
    for (int i = 0; i < kWidth; ++i) out[0][i] = F::df(in[0][i]) * in[1][i];
  }
};
template <class F>
void pointwise_forward_cuda(ConstView x, View y) {
  elementwise(PointwiseForwardBody<F>{}, y.shape, {x}, {y});
}
template <class F>
void pointwise_backward_cuda(ConstView x, ConstView dy, View dx) {
  elementwise(PointwiseBackwardBody<F>{}, dx.shape, {x, dy}, {dx});
}
template <class F>
inline constexpr PointwiseKernels pointwise_cuda{pointwise_forward_cuda<F>,
                                                 pointwise_backward_cuda<F>};

template <class F>
inline constexpr KernelTable<PointwiseKernels> pointwise_table{F::name, &pointwise_cpu<F>,
                                                               device_table(pointwise_cuda<F>)};

// The derivative of F's df: F with f' and f'' in the places of f and f'.
template <class F>
struct Derivative {
  static constexpr const char* name = F::name;
  static constexpr UnaryF32 vector_f = nullptr;
  static constexpr UnaryGradF32 vector_df = nullptr;
  template <class T>
  DUET_HD static T f(T x) {
    return F::df(x);
  }
  template <class T>
  DUET_HD static T df(T x) {
    return F::df(Dual<T>(x, T(1))).d;
  }
};
template <class F>
inline constexpr int kDerivatives = 0;
template <class F>
inline constexpr int kDerivatives<Derivative<F>> = 1 + kDerivatives<F>;

// dx = f'(x) dy as an op of its own. Third derivatives are offered, fourth are not.
template <class F>
struct PointwiseGrad {
  static constexpr const char* name = F::name;
  static constexpr const auto& kernels = pointwise_table<F>;
  static constexpr const auto& second = pointwise_table<Derivative<F>>;
  struct Saved {
    SavedTensor x, dy;
  };

  static Tensor product(const KernelTable<PointwiseKernels>& table, const Tensor& x,
                        const Tensor& dy) {
    Tensor dx = Tensor::empty(x.shape(), x.dtype(), x.device());
    table.launch(x.device(), &PointwiseKernels::backward, x.view(), dy.view(), dx.mutable_view());
    return dx;
  }
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& dy) const {
    saved.x.save_input(x);
    saved.dy.save_input(dy);
    return product(kernels, x, dy);
  }
  // With g the gradient of dx: ddy = f'(x) g, and x gets f''(x) g dy
  std::array<Tensor, 2> backward(const Saved& saved, const Tensor& g, const GradRequest& r) const {
    const Tensor& x = saved.x.get(name);
    return {r.needed(0) ? mul(product(second, x, g), saved.dy.get(name)) : Tensor(),
            r.needed(1) ? product(kernels, x, g) : Tensor()};
  }
  std::array<Tensor, 2> differentiable_backward(const Saved& saved, const Tensor& g,
                                                const GradRequest& r) const
      requires(kDerivatives<F> < 1) {
    const Tensor x = saved.x.with_edge(name);
    return {r.needed(0) ? mul(apply(PointwiseGrad<Derivative<F>>{}, x, g), saved.dy.with_edge(name))
                        : Tensor(),
            r.needed(1) ? apply(PointwiseGrad<F>{}, x, g) : Tensor()};
  }
};

template <class F>
struct Pointwise {
  static constexpr const char* name = F::name;
  static constexpr const auto& kernels = pointwise_table<F>;
  struct Saved {
    SavedTensor x;
  };

  Tensor forward(Saved& saved, const Tensor& x) const {
    Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    kernels.launch(x.device(), &PointwiseKernels::forward, x.view(), y.mutable_view());
    saved.x.save_input(x);
    return y;
  }
  // dx = f'(x) dy
  Tensor backward(const Saved& saved, const Tensor& dy) const {
    const Tensor& x = saved.x.get(name);
    Tensor dx = Tensor::empty(x.shape(), x.dtype(), x.device());
    kernels.launch(x.device(), &PointwiseKernels::backward, x.view(), dy.view(), dx.mutable_view());
    return dx;
  }
  Tensor differentiable_backward(const Saved& saved, const Tensor& dy) const {
    return apply(PointwiseGrad<F>{}, saved.x.with_edge(name), dy);
  }
};

template <class F>
Tensor pointwise(const Tensor& x) {
  check_inputs(F::name, {{"x", x}});
  return apply(Pointwise<F>{}, x);
}

// sigmoid without overflow on either side.
template <class T>
DUET_HD T sigmoid(T x) {
  using std::exp;
  const T e = exp(x < T(0) ? x : -x);
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

// x in [-limit, limit]; NaN stays. Keeps infinity * 0 out of products whose limit is 0.
template <class T>
DUET_HD T clamp(T x, T limit) {
  return x > limit ? limit : (x < -limit ? -limit : x);
}

}  // namespace duet
