// rms_norm on the CPU: a plain loop (f64), a vector loop (f32), and the threads around them.
#include <cmath>

#include "ops/residual_row.h"
#include "ops/rms_norm/rms_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rms_norm/rms_norm_cpu.cpp"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace duet {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
constexpr hn::ScalableTag<float> d;

float reciprocal_rms_of(const float* x, std::int64_t width, double eps) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = hn::Zero(d);
  std::int64_t j = 0;
  for (; j + 2 * lanes <= width; j += 2 * lanes) {
    const auto x0 = hn::LoadU(d, x + j), x1 = hn::LoadU(d, x + j + lanes);
    a = hn::MulAdd(x0, x0, a);
    b = hn::MulAdd(x1, x1, b);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
  for (; j < width; ++j) sum += x[j] * x[j];
  return std::isfinite(sum) ? reciprocal_rms(sum, width, eps) : reciprocal_rms_wide(x, width, eps);
}

void forward_rows(const RmsNormRows<float>& rows) {
  const std::int64_t width = rows.width;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    const float* x = residual_row(rows.x + i * width, row_or_null(rows.delta, i, width),
                                  row_or_null(rows.sum, i, width), width);
    float* y = rows.y + i * width;
    const float r = reciprocal_rms_of(x, width, rows.eps);
    const auto r_v = hn::Set(d, r);
    std::int64_t j = 0;
    for (; j + lanes <= width; j += lanes) {
      const auto n = hn::Mul(hn::LoadU(d, x + j), r_v);
      hn::StoreU(hn::Mul(n, hn::LoadU(d, rows.weight + j)), d, y + j);
    }
    for (; j < width; ++j) y[j] = x[j] * r * rows.weight[j];
  }
}

void backward_rows(const RmsNormRows<float>& rows) {
  const std::int64_t width = rows.width;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float* w = rows.weight;
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    const float* x = rows.x + i * width;
    const float* dy = rows.dy + i * width;
    const float r = reciprocal_rms_of(x, width, rows.eps);
    const auto r_v = hn::Set(d, r);
    auto dot_v = hn::Zero(d);  // <g, n>
    std::int64_t j = 0;
    for (; j + lanes <= width; j += lanes) {
      const auto dy_v = hn::LoadU(d, dy + j);
      const auto n = hn::Mul(hn::LoadU(d, x + j), r_v);
      dot_v = hn::MulAdd(hn::Mul(dy_v, hn::LoadU(d, w + j)), n, dot_v);
      if (rows.dweight != nullptr) {
        float* dw = rows.dweight + j;
        hn::StoreU(hn::MulAdd(dy_v, n, hn::LoadU(d, dw)), d, dw);
      }
    }
    float dot = hn::GetLane(hn::SumOfLanes(d, dot_v));
    for (; j < width; ++j) {
      dot += dy[j] * w[j] * (x[j] * r);
      if (rows.dweight != nullptr) rows.dweight[j] += dy[j] * (x[j] * r);
    }
    if (rows.dx == nullptr) continue;
    float* dx = rows.dx + i * width;
    const float* dsum = row_or_null(rows.dsum, i, width);
    const float c = dot / static_cast<float>(width);
    const auto c_v = hn::Set(d, c);
    for (j = 0; j + lanes <= width; j += lanes) {
      const auto n = hn::Mul(hn::LoadU(d, x + j), r_v);
      const auto g = hn::Mul(hn::LoadU(d, dy + j), hn::LoadU(d, w + j));
      const auto of_norm = hn::Mul(r_v, hn::NegMulAdd(n, c_v, g));
      hn::StoreU(dsum != nullptr ? hn::Add(hn::LoadU(d, dsum + j), of_norm) : of_norm, d, dx + j);
    }
    for (; j < width; ++j) {
      const float of_norm = r * (dy[j] * w[j] - x[j] * r * c);
      dx[j] = dsum != nullptr ? dsum[j] + of_norm : of_norm;
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace duet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace duet {
namespace {

HWY_EXPORT(forward_rows);
HWY_EXPORT(backward_rows);

void forward_rows(const RmsNormRows<float>& rows) { HWY_DYNAMIC_DISPATCH(forward_rows)(rows); }
void backward_rows(const RmsNormRows<float>& rows) { HWY_DYNAMIC_DISPATCH(backward_rows)(rows); }

template <class T>
T reciprocal_rms_of(const T* x, std::int64_t width, double eps) {
  T sum = 0;
  for (std::int64_t j = 0; j < width; ++j) sum += x[j] * x[j];
  return reciprocal_rms(sum, width, eps);
}

template <class T>
void forward_rows(const RmsNormRows<T>& rows) {
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    const T* x = residual_row(rows.x + i * rows.width, row_or_null(rows.delta, i, rows.width),
                              row_or_null(rows.sum, i, rows.width), rows.width);
    const T r = reciprocal_rms_of(x, rows.width, rows.eps);
    for (std::int64_t j = 0; j < rows.width; ++j) {
      rows.y[i * rows.width + j] = x[j] * r * rows.weight[j];
    }
  }
}

template <class T>
void backward_rows(const RmsNormRows<T>& rows) {
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    const T* x = rows.x + i * rows.width;
    const T* dy = rows.dy + i * rows.width;
    const T r = reciprocal_rms_of(x, rows.width, rows.eps);
    T dot = 0;
    for (std::int64_t j = 0; j < rows.width; ++j) {
      dot += dy[j] * rows.weight[j] * (x[j] * r);
      if (rows.dweight != nullptr) rows.dweight[j] += dy[j] * (x[j] * r);
    }
    if (rows.dx == nullptr) continue;
    const T c = dot / static_cast<T>(rows.width);
    T* dx = rows.dx + i * rows.width;
    const T* dsum = row_or_null(rows.dsum, i, rows.width);
    for (std::int64_t j = 0; j < rows.width; ++j) {
      const T of_norm = r * (dy[j] * rows.weight[j] - x[j] * r * c);
      dx[j] = dsum != nullptr ? dsum[j] + of_norm : of_norm;
    }
  }
}

void forward(ConstView x, ConstView delta, ConstView weight, double eps, View sum, View y) {
  const std::int64_t width = weight.numel();
  if (x.numel() == 0) return;
  visit_floating(x.dtype, "rms_norm", [&]<class T>(TypeTag<T>) {
    const RowChunks chunks = rms_norm_chunks(x.numel() / width, DeviceType::cpu);
    parallel_chunks(chunks.count, [&](std::int64_t i) {
      RmsNormRows<T> rows{chunks.begin(i), chunks.end(i), width, eps};
      rows.x = x.as<T>(), rows.delta = delta.as<T>(), rows.weight = weight.as<T>();
      rows.sum = sum.as<T>(), rows.y = y.as<T>();
      forward_rows(rows);
    });
  });
}

void backward(ConstView x, ConstView weight, ConstView dsum, ConstView dy, double eps, View dx,
              View parts, View dweight, bool add_dweight) {
  const std::int64_t width = weight.numel();
  if (width == 0) return;
  visit_floating(x.dtype, "rms_norm", [&]<class T>(TypeTag<T>) {
    const RowChunks chunks = rms_norm_chunks(x.numel() / width, DeviceType::cpu);
    parallel_chunks(chunks.count, [&](std::int64_t i) {
      T* part = parts.data != nullptr ? parts.as<T>() + i * width : nullptr;
      if (part != nullptr) std::fill_n(part, width, T{0});
      RmsNormRows<T> rows{chunks.begin(i), chunks.end(i), width, eps};
      rows.x = x.as<T>(), rows.weight = weight.as<T>(), rows.dsum = dsum.as<T>();
      rows.dy = dy.as<T>(), rows.dx = dx.as<T>(), rows.dweight = part;
      backward_rows(rows);
    });
    if (dweight.data != nullptr) {
      sum_parts(parts.as<T>(), chunks.count, width, dweight.as<T>(), add_dweight);
    }
  });
}

}  // namespace

extern const RmsNormKernels rms_norm_cpu{forward, backward};

}  // namespace duet
#endif
