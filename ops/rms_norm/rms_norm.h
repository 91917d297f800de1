// Kernels of rms_norm and add_rms_norm. x, y, dy, dx: [N, C] without gaps; weight, dweight: [C].
#pragma once

#include <cmath>

#include "ops/weight_gradient.h"
#include "runtime/view.h"

namespace duet {

// A GPU keeps a block at work on each chunk.
inline RowChunks rms_norm_chunks(std::int64_t rows, DeviceType device) {
  return device == DeviceType::cuda ? RowChunks{rows, 8, 512} : RowChunks{rows, 32, 64};
}

struct RmsNormKernels {
  // y: of x, where delta and sum are null; else of sum = x + delta, which is written too.
  void (*forward)(ConstView x, ConstView delta, ConstView weight, double eps, View sum, View y);
  // x: what was normalised. dsum, the gradient that reached it on another way, is added to dx; it
  // may be null.
  // dx and dweight may be null (not asked for); parts: [chunks, C], null with dweight.
  void (*backward)(ConstView x, ConstView weight, ConstView dsum, ConstView dy, double eps, View dx,
                   View parts, View dweight, bool add_dweight);
};

extern const RmsNormKernels rms_norm_cpu;
extern const RmsNormKernels rms_norm_cuda;

// --- Shared by the loops of rms_norm_cpu.cpp

// Rows [begin, end) of a kernel, and what they read and write.
template <class T>
struct RmsNormRows {
  std::int64_t begin, end, width;
  double eps;
  const T* x = nullptr;
  const T* delta = nullptr;  // or null, as sum and dsum
  const T* weight = nullptr;
  const T* dsum = nullptr;
  const T* dy = nullptr;
  T* sum = nullptr;
  T* y = nullptr;
  T* dx = nullptr;
  T* dweight = nullptr;  // [C], added to
};

template <class T>
T reciprocal_rms(T sum_of_squares, std::int64_t width, double eps) {
  return static_cast<T>(
      1 / std::sqrt(static_cast<double>(sum_of_squares) / static_cast<double>(width) + eps));
}

// For rows whose squares leave the range of float.
inline float reciprocal_rms_wide(const float* x, std::int64_t width, double eps) {
  double sum = 0;
  for (std::int64_t j = 0; j < width; ++j) sum += double{x[j]} * double{x[j]};
  return static_cast<float>(1 / std::sqrt(sum / static_cast<double>(width) + eps));
}

}  // namespace duet
