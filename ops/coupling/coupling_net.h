// The coupling's net f(x) = W2 silu(W1 x) on one tile of tokens, and its backward. `Math` does the
// arithmetic: PlainMath below in plain loops, VectorMath of coupling_cpu.cpp with vectors.
#pragma once

#include <cmath>
#include <cstdint>

namespace duet {

// Rows of numbers, row i at data + i * ld: a scratch tile, or rows of a tensor where they lie.
template <class T>
struct Tile {
  T* data;
  std::int64_t ld;

  T* row(std::int64_t i) const { return data + i * ld; }
  operator Tile<const T>() const { return {data, ld}; }  // NOLINT: writable is readable
};

// c [m, n] = base + alpha A b, no base: 0. A [m, k] lies in `a` row by row, or column by column
// when transposed. m and n are multiples of 8. c may be base.
template <class T>
struct TileProduct {
  std::int64_t m, n, k;
  T alpha;
  Tile<const T> a;
  bool a_transposed;
  Tile<const T> b, base;
  Tile<T> c;
};

template <class T>
struct PlainMath {
  using Scalar = T;

  static void product(const TileProduct<T>& p) {
    for (std::int64_t i = 0; i < p.m; ++i) {
      for (std::int64_t j = 0; j < p.n; ++j) {
        T sum = 0;
        for (std::int64_t l = 0; l < p.k; ++l) {
          sum += (p.a_transposed ? p.a.row(l)[i] : p.a.row(i)[l]) * p.b.row(l)[j];
        }
        p.c.row(i)[j] = p.alpha * sum + (p.base.data != nullptr ? p.base.row(i)[j] : T{0});
      }
    }
  }
  // a = silu(h) = h s, s = 1 / (1 + e^-h)
  static void silu(const T* h, std::int64_t n, T* a) {
    for (std::int64_t i = 0; i < n; ++i) a[i] = h[i] / (1 + std::exp(-h[i]));
  }
  // a = silu(h), g = g silu'(h) with silu'(h) = s (1 + h (1 - s)). Returns <g as given, a>.
  static T silu_backward(const T* h, std::int64_t n, T* g, T* a) {
    T dot = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const T s = 1 / (1 + std::exp(-h[i]));
      a[i] = h[i] * s;
      dot += g[i] * a[i];
      g[i] *= s * (1 + h[i] * (1 - s));
    }
    return dot;
  }
  // out = y + alpha x; out may be y.
  static void add_scaled(std::int64_t rows, std::int64_t width, T alpha, Tile<const T> x,
                         Tile<const T> y, Tile<T> out) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < width; ++j) out.row(i)[j] = y.row(i)[j] + alpha * x.row(i)[j];
    }
  }
  // The same, and returns <x, z>: one pass over x for both.
  static T add_scaled_and_dot(std::int64_t rows, std::int64_t width, T alpha, Tile<const T> x,
                              Tile<const T> y, Tile<T> out, Tile<const T> z) {
    T dot = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < width; ++j) dot += x.row(i)[j] * z.row(i)[j];
    }
    add_scaled(rows, width, alpha, x, y, out);
    return dot;
  }
};

template <class Math>
struct CouplingNet {
  using T = typename Math::Scalar;

  // Padded: D -> width, h -> hidden.
  std::int64_t width, hidden;
  Tile<const T> w1;             // [hidden, width]
  Tile<const T> w1_transposed;  // [width, hidden]
  Tile<const T> w2;             // [width, hidden]
  Tile<const T> w2_transposed;  // [hidden, width]
  T dt;

  // The sums that a tile adds its weight gradients to; those of w1 and w2 without the factor dt.
  struct Part {
    Tile<T> w1;             // [hidden, width]
    Tile<T> w2_transposed;  // [hidden, width]
    T* dt;
  };

  // h [rows, hidden] = x W1^T
  void project(std::int64_t rows, Tile<const T> x, Tile<T> h) const {
    Math::product({rows, hidden, width, 1, x, false, w1_transposed, {}, h});
  }
  // y_out [rows, width] = y + dt a W2^T, a = silu(h)
  void add_output(std::int64_t rows, Tile<const T> a, Tile<const T> y, Tile<T> y_out) const {
    Math::product({rows, width, hidden, dt, a, false, w2_transposed, y, y_out});
  }
  // g [rows, hidden] = gy W2: the gradient at a, from the gradient gy at f
  void pull_back(std::int64_t rows, Tile<const T> gy, Tile<T> g) const {
    Math::product({rows, hidden, width, 1, gy, false, w2, {}, g});
  }
  // gx_out [rows, width] = gx + dt g W1, g the gradient at h
  void add_input_gradient(std::int64_t rows, Tile<const T> g, Tile<const T> gx,
                          Tile<T> gx_out) const {
    Math::product({rows, width, hidden, dt, g, false, w1, gx, gx_out});
  }
  // dW1 += g^T x,  dW2^T += a^T gy
  void add_weight_gradients(std::int64_t rows, Tile<const T> g, Tile<const T> x, Tile<const T> a,
                            Tile<const T> gy, const Part& part) const {
    Math::product({hidden, width, rows, 1, g, true, x, part.w1, part.w1});
    Math::product({hidden, width, rows, 1, a, true, gy, part.w2_transposed, part.w2_transposed});
  }
};

}  // namespace duet
