// softmax on the CPU: a plain loop (f64), a vector loop (f32), and the threads around them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/row_loop.h"
#include "ops/softmax/softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/softmax/softmax_cpu.cpp"
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
constexpr hn::ScalableTag<float> d;
using V = hn::Vec<decltype(d)>;

// Highway's Exp gives 0 for NaN; here NaN stays NaN.
V exp_or_nan(V x) { return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x)); }

void forward_row(const float* x, float* y, std::int64_t width) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  float largest = -std::numeric_limits<float>::infinity();
  std::int64_t j = 0;
  if (width >= lanes) {
    V largest_v = hn::LoadU(d, x);
    for (j = lanes; j + lanes <= width; j += lanes) {
      largest_v = hn::Max(largest_v, hn::LoadU(d, x + j));
    }
    largest = hn::GetLane(hn::MaxOfLanes(d, largest_v));
  }
  for (; j < width; ++j) largest = std::max(largest, x[j]);

  const V largest_v = hn::Set(d, largest);
  V sum_v = hn::Zero(d);
  for (j = 0; j + lanes <= width; j += lanes) {
    const V e = exp_or_nan(hn::Sub(hn::LoadU(d, x + j), largest_v));
    hn::StoreU(e, d, y + j);
    sum_v = hn::Add(sum_v, e);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, sum_v));
  for (; j < width; ++j) {
    y[j] = std::exp(x[j] - largest);
    sum += y[j];
  }

  const float factor = 1.0F / sum;
  const V factor_v = hn::Set(d, factor);
  for (j = 0; j + lanes <= width; j += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, y + j), factor_v), d, y + j);
  }
  for (; j < width; ++j) y[j] *= factor;
}

void backward_row(const float* y, const float* dy, float* dx, std::int64_t width) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V dot_v = hn::Zero(d);
  std::int64_t j = 0;
  for (; j + lanes <= width; j += lanes) {
    dot_v = hn::MulAdd(hn::LoadU(d, y + j), hn::LoadU(d, dy + j), dot_v);
  }
  float dot = hn::GetLane(hn::SumOfLanes(d, dot_v));
  for (; j < width; ++j) dot += y[j] * dy[j];
  dot_v = hn::Set(d, dot);
  for (j = 0; j + lanes <= width; j += lanes) {
    const V centred = hn::Sub(hn::LoadU(d, dy + j), dot_v);
    hn::StoreU(hn::Mul(hn::LoadU(d, y + j), centred), d, dx + j);
  }
  for (; j < width; ++j) dx[j] = y[j] * (dy[j] - dot);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace duet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace duet {
namespace {

HWY_EXPORT(forward_row);
HWY_EXPORT(backward_row);

void forward_row(const float* x, float* y, std::int64_t width) {
  HWY_DYNAMIC_DISPATCH(forward_row)(x, y, width);
}
void backward_row(const float* y, const float* dy, float* dx, std::int64_t width) {
  HWY_DYNAMIC_DISPATCH(backward_row)(y, dy, dx, width);
}

template <class T>
void forward_row(const T* x, T* y, std::int64_t width) {
  const T largest = *std::max_element(x, x + width);
  T sum = 0;
  for (std::int64_t j = 0; j < width; ++j) {
    y[j] = std::exp(x[j] - largest);
    sum += y[j];
  }
  for (std::int64_t j = 0; j < width; ++j) y[j] /= sum;
}

template <class T>
void backward_row(const T* y, const T* dy, T* dx, std::int64_t width) {
  T dot = 0;
  for (std::int64_t j = 0; j < width; ++j) dot += y[j] * dy[j];
  for (std::int64_t j = 0; j < width; ++j) dx[j] = y[j] * (dy[j] - dot);
}

void forward(ConstView x, View y) {
  const std::int64_t width = x.shape.back();
  visit_floating(x.dtype, "softmax", [&]<class T>(TypeTag<T>) {
    for_rows(x.shape, [&](std::int64_t i) {
      forward_row(x.as<T>() + i * width, y.as<T>() + i * width, width);
    });
  });
}

void backward(ConstView y, ConstView dy, View dx) {
  const std::int64_t width = y.shape.back();
  visit_floating(y.dtype, "softmax", [&]<class T>(TypeTag<T>) {
    for_rows(y.shape, [&](std::int64_t i) {
      backward_row(y.as<T>() + i * width, dy.as<T>() + i * width, dx.as<T>() + i * width, width);
    });
  });
}

}  // namespace

extern const SoftmaxKernels softmax_cpu{forward, backward};

}  // namespace duet
#endif
