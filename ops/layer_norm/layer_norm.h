// Kernels of layer_norm and add_layer_norm. x, y, dy, dx: [N, C] without gaps; weight, bias,
// dweight, dbias: [C].
#pragma once

#include <algorithm>
#include <cmath>

#include "ops/weight_gradient.h"
#include "runtime/view.h"

namespace duet {

// A GPU keeps a block at work on each chunk.
inline RowChunks layer_norm_chunks(std::int64_t rows, DeviceType device) {
  return device == DeviceType::cuda ? RowChunks{rows, 8, 512} : RowChunks{rows, 32, 64};
}

struct LayerNormKernels {
  // y: of x, where delta and sum are null; else of sum = x + delta, which is written too. The bias
  // may be null.
  void (*forward)(ConstView x, ConstView delta, ConstView weight, ConstView bias, double eps,
                  View sum, View y);
  // x: what was normalised. dsum, the gradient that reached it on another way, is added to dx; it
  // may be null. Each gradient may be null (not asked for). dweight_parts, dbias_parts:
  // [chunks, C].
  void (*backward)(ConstView x, ConstView weight, ConstView dsum, ConstView dy, double eps, View dx,
                   View dweight_parts, View dweight, bool add_dweight, View dbias_parts, View dbias,
                   bool add_dbias);
};

extern const LayerNormKernels layer_norm_cpu;
extern const LayerNormKernels layer_norm_cuda;

// --- Shared by the loops of layer_norm_cpu.cpp

// Rows [begin, end) of a kernel, and what they read and write.
template <class T>
struct LayerNormRows {
  std::int64_t begin, end, width;
  double eps;
  const T* x = nullptr;
  const T* delta = nullptr;  // or null, as bias, sum and dsum
  const T* weight = nullptr;
  const T* bias = nullptr;
  const T* dsum = nullptr;
  const T* dy = nullptr;
  T* sum = nullptr;
  T* y = nullptr;
  T* dx = nullptr;
  T* dweight = nullptr;  // [C], added to
  T* dbias = nullptr;    // [C], added to
};

// The mean in two parts, m = m0 + m1, so that (x - m0) - m1 is right to the last bits however far
// from zero the row lies: a row of equal numbers gives exactly 0. r = 1 / sqrt(variance + eps).
template <class T>
struct RowStatistics {
  T m0, m1, r;
  T normalised(T x) const { return ((x - m0) - m1) * r; }
};

// From the sums of (x - m0) and of its square.
template <class T>
RowStatistics<T> statistics_from(T m0, T sum, T sum_of_squares, std::int64_t width, double eps) {
  const auto n = static_cast<T>(width);
  const T m1 = sum / n;
  const T variance = std::max(T{0}, (sum_of_squares - m1 * sum) / n);
  return {m0, m1, static_cast<T>(1 / std::sqrt(static_cast<double>(variance) + eps))};
}

// Sums kept in T, or in double for rows of float whose squares leave the range of float.
template <class T, class Sum = T>
RowStatistics<T> plain_statistics(const T* x, std::int64_t width, double eps) {
  Sum total = 0;
  for (std::int64_t j = 0; j < width; ++j) total += x[j];
  const T m0 = static_cast<T>(total / static_cast<Sum>(width));
  Sum sum = 0, squares = 0;
  for (std::int64_t j = 0; j < width; ++j) {
    const Sum e = static_cast<Sum>(x[j]) - static_cast<Sum>(m0);
    sum += e;
    squares += e * e;
  }
  const RowStatistics<Sum> s = statistics_from<Sum>(m0, sum, squares, width, eps);
  return {m0, static_cast<T>(s.m1), static_cast<T>(s.r)};
}

}  // namespace duet
