// The vector bodies of the pointwise ops: one copy per instruction set, chosen at run time.
#include "ops/pointwise/pointwise_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pointwise/pointwise_cpu.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per target
#include "hwy/highway.h"
// After highway.h.
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace duet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

HWY_INLINE V constant(double value) { return hn::Set(D(), static_cast<float>(value)); }

// Into [-limit, limit]; NaN stays.
HWY_INLINE V clamp(V x, double limit) {
  x = hn::IfThenElse(hn::Gt(x, constant(limit)), constant(limit), x);
  return hn::IfThenElse(hn::Lt(x, constant(-limit)), constant(-limit), x);
}

// 1 / (1 + exp(-x)), right to a few ulp in both tails: exp only ever sees -|x|.
HWY_INLINE V sigmoid(V x) {
  const V e = hn::Exp(D(), hn::Neg(hn::Abs(x)));
  const V r = hn::Div(constant(1), hn::Add(constant(1), e));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(D())), hn::Mul(e, r), r);
}

// Phi(x) = erfc(-x / sqrt(2)) / 2, with erfc by a Chebyshev fit of relative error 1.2e-7 (Numerical
// Recipes, 6.2): for negative x nothing cancels.
HWY_INLINE V normal_cdf(V x) {
  const V z = hn::Mul(hn::Abs(x), constant(0.70710678118654752));
  const V t = hn::Div(constant(1), hn::MulAdd(constant(0.5), z, constant(1)));
  V p = constant(0.17087277);
  for (const double c : {-0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418,
                         0.37409196, 1.00002368, -1.26551223}) {
    p = hn::MulAdd(p, t, constant(c));
  }
  const V tail = hn::Mul(hn::Mul(constant(0.5), t), hn::Exp(D(), hn::NegMulAdd(z, z, p)));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(D())), tail, hn::Sub(constant(1), tail));
}

struct Silu {
  // x * sigmoid(x); the limit at -infinity is 0
  static HWY_INLINE V f(V x) {
    const V lowest = constant(-110);  // sigmoid is 0 from here down
    return hn::Mul(hn::IfThenElse(hn::Lt(x, lowest), lowest, x), sigmoid(x));
  }
  // s (1 + x (1 - s))
  static HWY_INLINE V df(V x) {
    const V s = sigmoid(x);
    return hn::MulAdd(hn::Mul(s, clamp(x, 110)), hn::Sub(constant(1), s), s);
  }
};

struct Gelu {
  // x * Phi(x)
  static HWY_INLINE V f(V x) {
    const V lowest = constant(-20);  // Phi is 0 from here down
    const V bounded = hn::IfThenElse(hn::Lt(x, lowest), lowest, x);
    return hn::Mul(bounded, normal_cdf(bounded));
  }
  // Phi(x) + x exp(-x^2 / 2) / sqrt(2 pi)
  static HWY_INLINE V df(V x) {
    x = clamp(x, 20);
    const V bell = hn::Exp(D(), hn::Mul(hn::Mul(constant(-0.5), x), x));
    return hn::MulAdd(hn::Mul(constant(0.39894228040143268), x), bell, normal_cdf(x));
  }
};

struct GeluTanh {
  // x (1 + tanh(u)) / 2 = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): nothing cancels
  static constexpr double kTwoRoot = 1.5957691216057308;  // 2 sqrt(2/pi)
  static HWY_INLINE V two_u(V x) {
    return hn::Mul(hn::Mul(constant(kTwoRoot), x),
                   hn::MulAdd(hn::Mul(constant(0.044715), x), x, constant(1)));
  }
  static HWY_INLINE V f(V x) {
    const V lowest = constant(-20);
    const V bounded = hn::IfThenElse(hn::Lt(x, lowest), lowest, x);
    return hn::Mul(bounded, sigmoid(two_u(bounded)));
  }
  // s + x s (1 - s) 2u'
  static HWY_INLINE V df(V x) {
    x = clamp(x, 20);
    const V s = sigmoid(two_u(x));
    const V slope =
        hn::MulAdd(hn::Mul(constant(3 * 0.044715 * kTwoRoot), x), x, constant(kTwoRoot));
    return hn::MulAdd(hn::Mul(hn::Mul(x, s), hn::Sub(constant(1), s)), slope, s);
  }
};

// Calls body(i) with whole vectors and tail(i, mask) once for the rest.
template <class Body, class Tail>
HWY_INLINE void each_vector(std::int64_t n, Body&& body, Tail&& tail) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i);
  if (i < n) tail(i, hn::FirstN(D(), static_cast<std::size_t>(n - i)));
}

template <class F>
HWY_INLINE void map1(const float* x, float* y, std::int64_t n, F f) {
  const D d;
  each_vector(
      n, [&](std::int64_t i) { hn::StoreU(f(hn::LoadU(d, x + i)), d, y + i); },
      [&](std::int64_t i, auto mask) {
        hn::BlendedStore(f(hn::MaskedLoad(mask, d, x + i)), mask, d, y + i);
      });
}

template <class F>
HWY_INLINE void map2(const float* a, const float* b, float* y, std::int64_t n, F f) {
  const D d;
  each_vector(
      n, [&](std::int64_t i) { hn::StoreU(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, y + i); },
      [&](std::int64_t i, auto mask) {
        hn::BlendedStore(f(hn::MaskedLoad(mask, d, a + i), hn::MaskedLoad(mask, d, b + i)), mask, d,
                         y + i);
      });
}

template <class F>
HWY_INLINE void forward(const float* x, float* y, std::int64_t n) {
  map1(x, y, n, [](V v) HWY_ATTR { return F::f(v); });
}

template <class F>
HWY_INLINE void gradient(const float* x, const float* dy, float* dx, std::int64_t n) {
  map2(x, dy, dx, n, [](V v, V g) HWY_ATTR { return hn::Mul(g, F::df(v)); });
}

void Add(const float* a, const float* b, float* y, std::int64_t n) {
  map2(a, b, y, n, [](V u, V v) HWY_ATTR { return hn::Add(u, v); });
}
void Sub(const float* a, const float* b, float* y, std::int64_t n) {
  map2(a, b, y, n, [](V u, V v) HWY_ATTR { return hn::Sub(u, v); });
}
void Mul(const float* a, const float* b, float* y, std::int64_t n) {
  map2(a, b, y, n, [](V u, V v) HWY_ATTR { return hn::Mul(u, v); });
}
void Scale(const float* x, float factor, float* y, std::int64_t n) {
  map1(x, y, n, [factor](V v) HWY_ATTR { return hn::Mul(v, hn::Set(D(), factor)); });
}
void SiluForward(const float* x, float* y, std::int64_t n) { forward<Silu>(x, y, n); }
void GeluForward(const float* x, float* y, std::int64_t n) { forward<Gelu>(x, y, n); }
void GeluTanhForward(const float* x, float* y, std::int64_t n) { forward<GeluTanh>(x, y, n); }
void SiluGrad(const float* x, const float* dy, float* dx, std::int64_t n) {
  gradient<Silu>(x, dy, dx, n);
}
void GeluGrad(const float* x, const float* dy, float* dx, std::int64_t n) {
  gradient<Gelu>(x, dy, dx, n);
}
void GeluTanhGrad(const float* x, const float* dy, float* dx, std::int64_t n) {
  gradient<GeluTanh>(x, dy, dx, n);
}
void Swiglu(const float* gate, const float* up, float* y, std::int64_t n) {
  map2(gate, up, y, n, [](V g, V u) HWY_ATTR { return hn::Mul(Silu::f(g), u); });
}
void SwigluGrad(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                std::int64_t n) {
  const D d;
  each_vector(
      n,
      [&](std::int64_t i) HWY_ATTR {
        const V g = hn::LoadU(d, gate + i), u = hn::LoadU(d, up + i), o = hn::LoadU(d, dy + i);
        hn::StoreU(hn::Mul(hn::Mul(o, u), Silu::df(g)), d, dgate + i);
        hn::StoreU(hn::Mul(o, Silu::f(g)), d, dup + i);
      },
      [&](std::int64_t i, auto mask) HWY_ATTR {
        const V g = hn::MaskedLoad(mask, d, gate + i), u = hn::MaskedLoad(mask, d, up + i);
        const V o = hn::MaskedLoad(mask, d, dy + i);
        hn::BlendedStore(hn::Mul(hn::Mul(o, u), Silu::df(g)), mask, d, dgate + i);
        hn::BlendedStore(hn::Mul(o, Silu::f(g)), mask, d, dup + i);
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace duet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace duet {

HWY_EXPORT(Add);
HWY_EXPORT(Sub);
HWY_EXPORT(Mul);
HWY_EXPORT(Scale);
HWY_EXPORT(SiluForward);
HWY_EXPORT(GeluForward);
HWY_EXPORT(GeluTanhForward);
HWY_EXPORT(SiluGrad);
HWY_EXPORT(GeluGrad);
HWY_EXPORT(GeluTanhGrad);
HWY_EXPORT(Swiglu);
HWY_EXPORT(SwigluGrad);

void add_f32(const float* a, const float* b, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(Add)(a, b, y, n);
}
void sub_f32(const float* a, const float* b, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(Sub)(a, b, y, n);
}
void mul_f32(const float* a, const float* b, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(Mul)(a, b, y, n);
}
void scale_f32(const float* x, float factor, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(Scale)(x, factor, y, n);
}
void silu_f32(const float* x, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(SiluForward)(x, y, n);
}
void gelu_f32(const float* x, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(GeluForward)(x, y, n);
}
void gelu_tanh_f32(const float* x, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(GeluTanhForward)(x, y, n);
}
void silu_grad_f32(const float* x, const float* dy, float* dx, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(SiluGrad)(x, dy, dx, n);
}
void gelu_grad_f32(const float* x, const float* dy, float* dx, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(GeluGrad)(x, dy, dx, n);
}
void gelu_tanh_grad_f32(const float* x, const float* dy, float* dx, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(GeluTanhGrad)(x, dy, dx, n);
}
void swiglu_f32(const float* gate, const float* up, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(Swiglu)(gate, up, y, n);
}
void swiglu_grad_f32(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                     std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(SwigluGrad)(gate, up, dy, dgate, dup, n);
}

}  // namespace duet
#endif  // HWY_ONCE
