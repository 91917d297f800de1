// Turns a struct of scalar functions of two operands into a differentiable op that broadcasts:
//
//   struct Ratio {
//     static constexpr const char* name = "ratio";
//     template <class T> DUET_HD static T f(T a, T b) { return a / b; }
//     template <class T> DUET_HD static T da(T, T b) { return T(1) / b; }        // df/da
//     template <class T> DUET_HD static T db(T a, T b) { return -a / (b * b); }  // df/db
//     static constexpr BinaryF32 vector_f = nullptr;  // an f32 body for contiguous rows, if any
//   };
//   Tensor ratio(const Tensor& a, const Tensor& b) { return pointwise<Ratio>(a, b); }
//
// The second derivatives come from da and db on dual numbers, so these must take them: call
// functions as `using std::exp; exp(a)` (dual.h has those of duals), write constants T(0.5), branch
// by ?:.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "ops/ops.h"
#include "ops/pointwise/binary.h"
#include "ops/pointwise/dual.h"
#include "ops/reduce/reduce.h"

namespace duet {

// All views have the shape of the output; an operand that was broadcast has strides of 0.
struct BinaryGradKernels {
  void (*da)(ConstView a, ConstView b, ConstView dy, View da);
  void (*db)(ConstView a, ConstView b, ConstView dy, View db);
};

// out = slope(a, b) dy
template <class F, class Slope>
void binary_gradient_cpu(ConstView a, ConstView b, ConstView dy, View out, Slope slope) {
  visit_floating(out.dtype, F::name, [&]<class T>(TypeTag<T>) {
    parallel_rows<4>(out.shape, {a.strides, b.strides, dy.strides, out.strides},
                     [&](const auto& at, std::int64_t n, const auto& step, std::int64_t) {
                       const T* pa = a.as<T>() + at[0];
                       const T* pb = b.as<T>() + at[1];
                       const T* pdy = dy.as<T>() + at[2];
                       T* p = out.as<T>() + at[3];
                       for (std::int64_t i = 0; i < n; ++i) {
                         p[i * step[3]] =
                             slope(pa[i * step[0]], pb[i * step[1]]) * pdy[i * step[2]];
                       }
                     });
  });
}

template <class F>
void binary_da_cpu(ConstView a, ConstView b, ConstView dy, View out) {
  binary_gradient_cpu<F>(a, b, dy, out, [](auto x, auto y) { return F::da(x, y); });
}
template <class F>
void binary_db_cpu(ConstView a, ConstView b, ConstView dy, View out) {
  binary_gradient_cpu<F>(a, b, dy, out, [](auto x, auto y) { return F::db(x, y); });
}

template <class F>
inline constexpr BinaryGradKernels binary_grad_cpu{binary_da_cpu<F>, binary_db_cpu<F>};

template <class F, bool kByA>
struct BinaryGradientBody : ElementwiseBody<3, 1> {
  template <int kWidth>
  DUET_HD void operator()(std::int64_t, const float (&in)[3][kWidth],
                          float (&out)[1][kWidth]) const {
    for (int i = 0; i < kWidth; ++i) {
      const float a = in[0][i], b = in[1][i];
      if constexpr (kByA) {
        out[0][i] = F::da(a, b) * in[2][i];
      } else {
        out[0][i] = F::db(a, b) * in[2][i];
      }
    }
  }
};
template <class F>
void binary_da_cuda(ConstView a, ConstView b, ConstView dy, View da) {
  elementwise(BinaryGradientBody<F, true>{}, da.shape, {a, b, dy}, {da});
}
template <class F>
void binary_db_cuda(ConstView a, ConstView b, ConstView dy, View db) {
  elementwise(BinaryGradientBody<F, false>{}, db.shape, {a, b, dy}, {db});
}

template <class F>
inline constexpr BinaryGradKernels binary_grad_cuda{binary_da_cuda<F>, binary_db_cuda<F>};

// df/da (or df/db) as a function of two operands with derivatives of its own.
enum class Operand : std::uint8_t { a, b };
template <class F, Operand kBy>
struct Partial {
  static constexpr const char* name = F::name;
  static constexpr BinaryF32 vector_f = nullptr;
  template <class T>
  DUET_HD static T f(T a, T b) {
    if constexpr (kBy == Operand::a) {
      return F::da(a, b);
    } else {
      return F::db(a, b);
    }
  }
  template <class T>
  DUET_HD static T da(T a, T b) {
    return f(Dual<T>(a, T(1)), Dual<T>(b, T(0))).d;
  }
  template <class T>
  DUET_HD static T db(T a, T b) {
    return f(Dual<T>(a, T(0)), Dual<T>(b, T(1))).d;
  }
};
template <class F>
inline constexpr bool kIsPartial = false;
template <class F, Operand kBy>
inline constexpr bool kIsPartial<Partial<F, kBy>> = true;

template <class F>
struct PointwiseBinary {
  static constexpr const char* name = F::name;
  static constexpr KernelTable<BinaryGradKernels> kernels{F::name, &binary_grad_cpu<F>,
                                                          device_table(binary_grad_cuda<F>)};
  struct Saved {
    SavedTensor a, b;
  };
  Shape shape;

  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    saved.a.save_input(a);
    saved.b.save_input(b);
    return binary<F>(a, b, shape);
  }
  // da = df/da dy, db = df/db dy, each summed over the dims in which it was broadcast
  std::array<Tensor, 2> backward(const Saved& saved, const Tensor& dy, const GradRequest& r) const {
    const Tensor& a = saved.a.get(name);
    const Tensor& b = saved.b.get(name);
    const auto gradient = [&](auto kernel, const Shape& to) {
      Tensor full = Tensor::empty(shape, a.dtype(), a.device());
      kernels.launch(a.device(), kernel, a.expand_view(shape).view(), b.expand_view(shape).view(),
                     dy.view(), full.mutable_view());
      return sum_to(full, to);
    };
    return {r.needed(0) ? gradient(&BinaryGradKernels::da, a.shape()) : Tensor(),
            r.needed(1) ? gradient(&BinaryGradKernels::db, b.shape()) : Tensor()};
  }
  // Second derivatives are offered. Third are not: each op would take three times as long to
  // compile.
  std::array<Tensor, 2> differentiable_backward(const Saved& saved, const Tensor& dy,
                                                const GradRequest& r) const
      requires(!kIsPartial<F>) {
    const Tensor a = saved.a.with_edge(name), b = saved.b.with_edge(name);
    return {r.needed(0) ? slope<Operand::a>(a, b, dy, a.shape()) : Tensor(),
            r.needed(1) ? slope<Operand::b>(a, b, dy, b.shape()) : Tensor()};
  }

 private:
  template <Operand kBy>
  Tensor slope(const Tensor& a, const Tensor& b, const Tensor& dy, const Shape& to) const {
    const Tensor df = apply(PointwiseBinary<Partial<F, kBy>>{shape}, a, b);
    return differentiable_sum_to(mul(df, dy), to);
  }
};

template <class F>
Tensor pointwise(const Tensor& a, const Tensor& b) {
  check_inputs(F::name, {{"a", a}, {"b", b}});
  return apply(PointwiseBinary<F>{broadcast_shapes(a.shape(), b.shape(), F::name)}, a, b);
}

}  // namespace duet
