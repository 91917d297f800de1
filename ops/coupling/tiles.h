// Tiles of tokens, and the arithmetic on them: PlainMath below in plain loops, VectorMath of
// coupling_cpu.cpp with vectors.
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

  // s = tanh(s), e = exp(s)
  static void bounded_scales(std::int64_t n, T* s, T* e) {
    for (std::int64_t i = 0; i < n; ++i) {
      s[i] = std::tanh(s[i]);
      e[i] = std::exp(s[i]);
    }
  }
  // out = y e + t; out may be y.
  static void scale_and_shift(std::int64_t rows, std::int64_t width, Tile<const T> y,
                              Tile<const T> e, Tile<const T> t, Tile<T> out) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < width; ++j) {
        out.row(i)[j] = y.row(i)[j] * e.row(i)[j] + t.row(i)[j];
      }
    }
  }
  // out = (y - t) / e; out may be y.
  static void shift_and_scale_back(std::int64_t rows, std::int64_t width, Tile<const T> y,
                                   Tile<const T> e, Tile<const T> t, Tile<T> out) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < width; ++j) {
        out.row(i)[j] = (y.row(i)[j] - t.row(i)[j]) / e.row(i)[j];
      }
    }
  }
  // y = y e
  static void multiply(std::int64_t rows, std::int64_t width, Tile<const T> e, Tile<T> y) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < width; ++j) y.row(i)[j] *= e.row(i)[j];
    }
  }
  // gs = (add ? gs : 0) + gy y e
  static void scale_gradient(std::int64_t rows, std::int64_t width, bool add, Tile<const T> gy,
                             Tile<const T> y, Tile<const T> e, Tile<T> gs) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < width; ++j) {
        const T more = gy.row(i)[j] * y.row(i)[j] * e.row(i)[j];
        gs.row(i)[j] = add ? gs.row(i)[j] + more : more;
      }
    }
  }
  // gs = gs (1 - s^2), the way back through s = tanh
  static void tanh_backward(std::int64_t n, const T* s, T* gs) {
    for (std::int64_t i = 0; i < n; ++i) gs[i] *= 1 - s[i] * s[i];
  }
};

}  // namespace duet
