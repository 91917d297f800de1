// The couplings on the CPU: the vector arithmetic of a tile (f32), and the table of kernels.
#include "ops/coupling/coupling.h"
#include "ops/coupling/walks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/coupling/coupling_cpu.cpp"
// clang-format off
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace duet {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// A micro-tile's rows of A: element (i, l).
template <bool kTransposed>
struct Left {
  Tile<const float> a;
  float at(std::int64_t i, std::int64_t l) const { return kTransposed ? a.row(l)[i] : a.row(i)[l]; }
  Left below(std::int64_t rows) const {
    return {{kTransposed ? a.data + rows : a.row(rows), a.ld}};
  }
};

// c[i][j ..] = base + alpha sum
template <class D>
HWY_INLINE void finish(D d, const TileProduct<float>& p, std::int64_t i, std::int64_t j,
                       hn::Vec<D> sum) {
  const auto alpha = hn::Set(d, p.alpha);
  hn::StoreU(p.base.data != nullptr ? hn::MulAdd(alpha, sum, hn::LoadU(d, p.base.row(i) + j))
                                    : hn::Mul(alpha, sum),
             d, p.c.row(i) + j);
}

// c[i .. i+4, j .. j + 2 vectors]: eight sums in registers, enough to keep two multipliers busy.
template <class D, bool kTransposed>
HWY_INLINE void micro_4x2(D d, const TileProduct<float>& p, std::int64_t i, std::int64_t j) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto a = Left<kTransposed>{p.a}.below(i);
  const float* b = p.b.data + j;
  auto s00 = hn::Zero(d), s01 = s00, s10 = s00, s11 = s00;
  auto s20 = s00, s21 = s00, s30 = s00, s31 = s00;
  for (std::int64_t l = 0; l < p.k; ++l, b += p.b.ld) {
    const auto b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + lanes);
    const auto a0 = hn::Set(d, a.at(0, l));
    s00 = hn::MulAdd(a0, b0, s00);
    s01 = hn::MulAdd(a0, b1, s01);
    const auto a1 = hn::Set(d, a.at(1, l));
    s10 = hn::MulAdd(a1, b0, s10);
    s11 = hn::MulAdd(a1, b1, s11);
    const auto a2 = hn::Set(d, a.at(2, l));
    s20 = hn::MulAdd(a2, b0, s20);
    s21 = hn::MulAdd(a2, b1, s21);
    const auto a3 = hn::Set(d, a.at(3, l));
    s30 = hn::MulAdd(a3, b0, s30);
    s31 = hn::MulAdd(a3, b1, s31);
  }
  finish(d, p, i, j, s00);
  finish(d, p, i, j + lanes, s01);
  finish(d, p, i + 1, j, s10);
  finish(d, p, i + 1, j + lanes, s11);
  finish(d, p, i + 2, j, s20);
  finish(d, p, i + 2, j + lanes, s21);
  finish(d, p, i + 3, j, s30);
  finish(d, p, i + 3, j + lanes, s31);
}

// c[i .. i+8, j .. j + 1 vector].
template <class D, bool kTransposed>
HWY_INLINE void micro_8x1(D d, const TileProduct<float>& p, std::int64_t i, std::int64_t j) {
  const auto a = Left<kTransposed>{p.a}.below(i);
  const float* b = p.b.data + j;
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  for (std::int64_t l = 0; l < p.k; ++l, b += p.b.ld) {
    const auto b0 = hn::LoadU(d, b);
    s0 = hn::MulAdd(hn::Set(d, a.at(0, l)), b0, s0);
    s1 = hn::MulAdd(hn::Set(d, a.at(1, l)), b0, s1);
    s2 = hn::MulAdd(hn::Set(d, a.at(2, l)), b0, s2);
    s3 = hn::MulAdd(hn::Set(d, a.at(3, l)), b0, s3);
    s4 = hn::MulAdd(hn::Set(d, a.at(4, l)), b0, s4);
    s5 = hn::MulAdd(hn::Set(d, a.at(5, l)), b0, s5);
    s6 = hn::MulAdd(hn::Set(d, a.at(6, l)), b0, s6);
    s7 = hn::MulAdd(hn::Set(d, a.at(7, l)), b0, s7);
  }
  finish(d, p, i, j, s0);
  finish(d, p, i + 1, j, s1);
  finish(d, p, i + 2, j, s2);
  finish(d, p, i + 3, j, s3);
  finish(d, p, i + 4, j, s4);
  finish(d, p, i + 5, j, s5);
  finish(d, p, i + 6, j, s6);
  finish(d, p, i + 7, j, s7);
}

template <class D, bool kTransposed>
void product_with(D d, const TileProduct<float>& p) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t j = 0;
  for (; j + 2 * lanes <= p.n; j += 2 * lanes) {
    for (std::int64_t i = 0; i < p.m; i += 4) micro_4x2<D, kTransposed>(d, p, i, j);
  }
  for (; j < p.n; j += lanes) {
    for (std::int64_t i = 0; i < p.m; i += 8) micro_8x1<D, kTransposed>(d, p, i, j);
  }
}

template <class D>
void product_of(D d, const TileProduct<float>& p) {
  p.a_transposed ? product_with<D, true>(d, p) : product_with<D, false>(d, p);
}

// Sizes of tiles are multiples of 64, so that the loops below have no remainder.
struct VectorMath {
  using Scalar = float;

  static void product(const TileProduct<float>& p) {
    // Where a vector is wider than the 8 columns that tiles are padded to, 8 lanes of it will do.
    const hn::ScalableTag<float> whole;
    if (p.n % static_cast<std::int64_t>(hn::Lanes(whole)) == 0) {
      product_of(whole, p);
    } else {
      product_of(hn::CappedTag<float, 8>(), p);
    }
  }

  // 1 / (1 + e^-h)
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V sigmoid(D d, V h) {
    const V e = hn::Exp(d, hn::Min(hn::Neg(h), hn::Set(d, 88.0F)));
    const V one = hn::Set(d, 1.0F);
    return hn::Div(one, hn::Add(one, e));
  }
  static void silu(const float* h, std::int64_t n, float* a) {
    const hn::ScalableTag<float> d;
    for (std::int64_t i = 0; i < n; i += static_cast<std::int64_t>(hn::Lanes(d))) {
      const auto x = hn::LoadU(d, h + i);
      hn::StoreU(hn::Mul(x, sigmoid(d, x)), d, a + i);
    }
  }
  static float silu_backward(const float* h, std::int64_t n, float* g, float* a) {
    const hn::ScalableTag<float> d;
    const auto one = hn::Set(d, 1.0F);
    auto dot = hn::Zero(d);
    for (std::int64_t i = 0; i < n; i += static_cast<std::int64_t>(hn::Lanes(d))) {
      const auto x = hn::LoadU(d, h + i);
      const auto given = hn::LoadU(d, g + i);
      const auto s = sigmoid(d, x);
      const auto y = hn::Mul(x, s);
      hn::StoreU(y, d, a + i);
      dot = hn::MulAdd(given, y, dot);
      const auto derivative = hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one));
      hn::StoreU(hn::Mul(given, derivative), d, g + i);
    }
    return hn::GetLane(hn::SumOfLanes(d, dot));
  }
  static void add_scaled(std::int64_t rows, std::int64_t width, float alpha, Tile<const float> x,
                         Tile<const float> y, Tile<float> out) {
    const hn::CappedTag<float, 8> d;
    const auto factor = hn::Set(d, alpha);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < width; j += static_cast<std::int64_t>(hn::Lanes(d))) {
        const auto moved =
            hn::MulAdd(factor, hn::LoadU(d, x.row(i) + j), hn::LoadU(d, y.row(i) + j));
        hn::StoreU(moved, d, out.row(i) + j);
      }
    }
  }
  static float add_scaled_and_dot(std::int64_t rows, std::int64_t width, float alpha,
                                  Tile<const float> x, Tile<const float> y, Tile<float> out,
                                  Tile<const float> z) {
    const hn::CappedTag<float, 8> d;
    const auto factor = hn::Set(d, alpha);
    float sum = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      auto dot = hn::Zero(d);
      for (std::int64_t j = 0; j < width; j += static_cast<std::int64_t>(hn::Lanes(d))) {
        const auto x_v = hn::LoadU(d, x.row(i) + j);
        dot = hn::MulAdd(x_v, hn::LoadU(d, z.row(i) + j), dot);
        hn::StoreU(hn::MulAdd(factor, x_v, hn::LoadU(d, y.row(i) + j)), d, out.row(i) + j);
      }
      sum += hn::GetLane(hn::SumOfLanes(d, dot));
    }
    return sum;
  }

  // Calls f(i, j) for the first element of every vector of a tile [rows, width].
  template <class D, class F>
  static HWY_INLINE void each(D d, std::int64_t rows, std::int64_t width, F f) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < width; j += static_cast<std::int64_t>(hn::Lanes(d))) f(i, j);
    }
  }
  static void bounded_scales(std::int64_t n, float* s, float* e) {
    const hn::ScalableTag<float> d;
    for (std::int64_t i = 0; i < n; i += static_cast<std::int64_t>(hn::Lanes(d))) {
      // Highway's Tanh and Exp bound NaN away; a NaN weight must not vanish.
      const auto given = hn::LoadU(d, s + i);
      const auto is_nan = hn::IsNaN(given);
      const auto bounded = hn::IfThenElse(is_nan, given, hn::Tanh(d, given));
      hn::StoreU(bounded, d, s + i);
      hn::StoreU(hn::IfThenElse(is_nan, given, hn::Exp(d, bounded)), d, e + i);
    }
  }
  static void scale_and_shift(std::int64_t rows, std::int64_t width, Tile<const float> y,
                              Tile<const float> e, Tile<const float> t, Tile<float> out) {
    const hn::CappedTag<float, 8> d;
    each(d, rows, width, [&](std::int64_t i, std::int64_t j) HWY_ATTR {
      const auto y_v = hn::LoadU(d, y.row(i) + j), e_v = hn::LoadU(d, e.row(i) + j);
      hn::StoreU(hn::MulAdd(y_v, e_v, hn::LoadU(d, t.row(i) + j)), d, out.row(i) + j);
    });
  }
  static void shift_and_scale_back(std::int64_t rows, std::int64_t width, Tile<const float> y,
                                   Tile<const float> e, Tile<const float> t, Tile<float> out) {
    const hn::CappedTag<float, 8> d;
    each(d, rows, width, [&](std::int64_t i, std::int64_t j) HWY_ATTR {
      const auto moved = hn::Sub(hn::LoadU(d, y.row(i) + j), hn::LoadU(d, t.row(i) + j));
      hn::StoreU(hn::Div(moved, hn::LoadU(d, e.row(i) + j)), d, out.row(i) + j);
    });
  }
  static void multiply(std::int64_t rows, std::int64_t width, Tile<const float> e, Tile<float> y) {
    const hn::CappedTag<float, 8> d;
    each(d, rows, width, [&](std::int64_t i, std::int64_t j) HWY_ATTR {
      const auto scaled = hn::Mul(hn::LoadU(d, y.row(i) + j), hn::LoadU(d, e.row(i) + j));
      hn::StoreU(scaled, d, y.row(i) + j);
    });
  }
  static void scale_gradient(std::int64_t rows, std::int64_t width, bool add, Tile<const float> gy,
                             Tile<const float> y, Tile<const float> e, Tile<float> gs) {
    const hn::CappedTag<float, 8> d;
    each(d, rows, width, [&](std::int64_t i, std::int64_t j) HWY_ATTR {
      const auto moved = hn::Mul(hn::LoadU(d, y.row(i) + j), hn::LoadU(d, e.row(i) + j));
      const auto before = add ? hn::LoadU(d, gs.row(i) + j) : hn::Zero(d);
      hn::StoreU(hn::MulAdd(hn::LoadU(d, gy.row(i) + j), moved, before), d, gs.row(i) + j);
    });
  }
  static void tanh_backward(std::int64_t n, const float* s, float* gs) {
    const hn::ScalableTag<float> d;
    for (std::int64_t i = 0; i < n; i += static_cast<std::int64_t>(hn::Lanes(d))) {
      const auto s_v = hn::LoadU(d, s + i);
      const auto derivative = hn::NegMulAdd(s_v, s_v, hn::Set(d, 1.0F));
      hn::StoreU(hn::Mul(hn::LoadU(d, gs + i), derivative), d, gs + i);
    }
  }
};

void vector_forward(const CouplingSizes& sizes, const CouplingKernels::Inputs& in, View q_out,
                    View k_out, View workspace, std::int64_t threads) {
  with_walk<VectorMath>(sizes, in, workspace, threads, false,
                        [&](const auto& walk) { walk.forward(q_out, k_out); });
}

void vector_backward(const CouplingSizes& sizes, const CouplingKernels::Inputs& in,
                     const CouplingKernels::Gradients& gradients, View workspace,
                     std::int64_t threads) {
  with_walk<VectorMath>(sizes, in, workspace, threads, true,
                        [&](const auto& walk) { walk.backward(gradients); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace duet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace duet {
namespace {

HWY_EXPORT(vector_forward);
HWY_EXPORT(vector_backward);

void forward(const CouplingSizes& sizes, const CouplingKernels::Inputs& in, View q_out, View k_out,
             View workspace, std::int64_t threads) {
  if (in.q.dtype == DType::f32) {
    HWY_DYNAMIC_DISPATCH(vector_forward)(sizes, in, q_out, k_out, workspace, threads);
  } else {
    with_walk<PlainMath<double>>(sizes, in, workspace, threads, false,
                                 [&](const auto& walk) { walk.forward(q_out, k_out); });
  }
}

void backward(const CouplingSizes& sizes, const CouplingKernels::Inputs& in,
              const CouplingKernels::Gradients& gradients, View workspace, std::int64_t threads) {
  if (in.q.dtype == DType::f32) {
    HWY_DYNAMIC_DISPATCH(vector_backward)(sizes, in, gradients, workspace, threads);
  } else {
    with_walk<PlainMath<double>>(sizes, in, workspace, threads, true,
                                 [&](const auto& walk) { walk.backward(gradients); });
  }
}

}  // namespace

extern const CouplingKernels coupling_cpu{forward, backward};

}  // namespace duet
#endif
