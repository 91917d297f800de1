// The nets of the couplings on one tile of tokens, and their backward: f(x) = W2 silu(W1 x), and
// the net of an affine half-step, which has two such outputs.
#pragma once

#include "ops/coupling/tiles.h"

namespace duet {

// A weight in both layouts, padded: the product of tiles reads its right side row by row.
template <class T>
struct Matrix {
  Tile<const T> plain, transposed;
};

template <class Math>
struct CouplingNet {
  using T = typename Math::Scalar;

  // Padded: D -> width, h -> hidden.
  std::int64_t width, hidden;
  Matrix<T> w1;  // [hidden, width]
  Matrix<T> w2;  // [width, hidden]
  T dt;

  // The sums that a tile adds its weight gradients to; those of w1 and w2 without the factor dt.
  struct Part {
    Tile<T> w1;             // [hidden, width]
    Tile<T> w2_transposed;  // [hidden, width]
    T* dt;
  };

  // `factor` below: the part of a whole step dt that the stage takes.

  // h [rows, hidden] = x W1^T
  void project(std::int64_t rows, Tile<const T> x, Tile<T> h) const {
    Math::product({rows, hidden, width, 1, x, false, w1.transposed, {}, h});
  }
  // y_out [rows, width] = y + factor dt a W2^T, a = silu(h)
  void add_output(std::int64_t rows, T factor, Tile<const T> a, Tile<const T> y,
                  Tile<T> y_out) const {
    Math::product({rows, width, hidden, factor * dt, a, false, w2.transposed, y, y_out});
  }
  // g [rows, hidden] = gy W2: the gradient at a, from the gradient gy at f
  void pull_back(std::int64_t rows, Tile<const T> gy, Tile<T> g) const {
    Math::product({rows, hidden, width, 1, gy, false, w2.plain, {}, g});
  }
  // gx_out [rows, width] = gx + factor dt g W1, g the gradient at h
  void add_input_gradient(std::int64_t rows, T factor, Tile<const T> g, Tile<const T> gx,
                          Tile<T> gx_out) const {
    Math::product({rows, width, hidden, factor * dt, g, false, w1.plain, gx, gx_out});
  }
  // dW1 += factor g^T x,  dW2^T += factor a^T gy
  void add_weight_gradients(std::int64_t rows, T factor, Tile<const T> g, Tile<const T> x,
                            Tile<const T> a, Tile<const T> gy, const Part& part) const {
    Math::product({hidden, width, rows, factor, g, true, x, part.w1, part.w1});
    Math::product(
        {hidden, width, rows, factor, a, true, gy, part.w2_transposed, part.w2_transposed});
  }
};

// s = tanh(Ws a), t = Wt a, a = silu(W1 x); Ws and Wt are the upper and the lower half of w2.
template <class Math>
struct AffineNet {
  using T = typename Math::Scalar;

  std::int64_t width, hidden;
  Matrix<T> w1;      // [hidden, width]
  Matrix<T> ws, wt;  // [width, hidden]

  struct Part {
    Tile<T> w1, ws_transposed, wt_transposed;  // [hidden, width]
  };

  // h = x W1^T and a = silu(h) stay for backward; e = exp(s). t may be left out.
  void evaluate(std::int64_t rows, Tile<const T> x, Tile<T> h, Tile<T> a, Tile<T> s, Tile<T> e,
                Tile<T> t) const {
    Math::product({rows, hidden, width, 1, x, false, w1.transposed, {}, h});
    Math::silu(h.data, rows * hidden, a.data);
    Math::product({rows, width, hidden, 1, a, false, ws.transposed, {}, s});
    Math::bounded_scales(rows * width, s.data, e.data);
    if (t.data != nullptr) Math::product({rows, width, hidden, 1, a, false, wt.transposed, {}, t});
  }
  // From the gradients at Ws a and at t:
  //   g = (Ws^T gs + Wt^T gt) * silu'(h)       gx_out = gx + W1^T g
  //   dW1 += g x^T    dWs += gs a^T    dWt += gt a^T
  void backward(std::int64_t rows, Tile<const T> x, Tile<const T> h, Tile<const T> gs,
                Tile<const T> gt, Tile<T> g, Tile<T> a, const Part* part, Tile<const T> gx,
                Tile<T> gx_out) const {
    Math::product({rows, hidden, width, 1, gs, false, ws.plain, {}, g});
    Math::product({rows, hidden, width, 1, gt, false, wt.plain, g, g});
    Math::silu_backward(h.data, rows * hidden, g.data, a.data);
    if (part != nullptr) {
      Math::product({hidden, width, rows, 1, g, true, x, part->w1, part->w1});
      Math::product(
          {hidden, width, rows, 1, a, true, gs, part->ws_transposed, part->ws_transposed});
      Math::product(
          {hidden, width, rows, 1, a, true, gt, part->wt_transposed, part->wt_transposed});
    }
    Math::product({rows, width, hidden, 1, g, false, w1.plain, gx, gx_out});
  }
};

}  // namespace duet
