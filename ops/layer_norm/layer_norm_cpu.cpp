// layer_norm on the CPU: a plain loop (f64), a vector loop (f32), and the threads around them.
#include <cmath>

#include "ops/layer_norm/layer_norm.h"
#include "ops/residual_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/layer_norm/layer_norm_cpu.cpp"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace duet {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
constexpr hn::ScalableTag<float> d;
using V = hn::Vec<decltype(d)>;

RowStatistics<float> statistics(const float* x, std::int64_t width, double eps) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V a = hn::Zero(d), b = hn::Zero(d);
  std::int64_t j = 0;
  for (; j + 2 * lanes <= width; j += 2 * lanes) {
    a = hn::Add(a, hn::LoadU(d, x + j));
    b = hn::Add(b, hn::LoadU(d, x + j + lanes));
  }
  float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
  for (; j < width; ++j) total += x[j];
  const float m0 = total / static_cast<float>(width);

  const V m0_v = hn::Set(d, m0);
  V sum_v = hn::Zero(d), squares_v = hn::Zero(d);
  for (j = 0; j + lanes <= width; j += lanes) {
    const V e = hn::Sub(hn::LoadU(d, x + j), m0_v);
    sum_v = hn::Add(sum_v, e);
    squares_v = hn::MulAdd(e, e, squares_v);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, sum_v));
  float squares = hn::GetLane(hn::SumOfLanes(d, squares_v));
  for (; j < width; ++j) {
    sum += x[j] - m0;
    squares += (x[j] - m0) * (x[j] - m0);
  }
  if (!std::isfinite(squares)) return plain_statistics<float, double>(x, width, eps);
  return statistics_from(m0, sum, squares, width, eps);
}

// n = (x - m) r of one vector.
struct Normaliser {
  V m0, m1, r;
  explicit Normaliser(const RowStatistics<float>& s)
      : m0(hn::Set(d, s.m0)), m1(hn::Set(d, s.m1)), r(hn::Set(d, s.r)) {}
  V operator()(const float* x) const {
    return hn::Mul(hn::Sub(hn::Sub(hn::LoadU(d, x), m0), m1), r);
  }
};

void forward_rows(const LayerNormRows<float>& rows) {
  const std::int64_t width = rows.width;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    const float* x = residual_row(rows.x + i * width, row_or_null(rows.delta, i, width),
                                  row_or_null(rows.sum, i, width), width);
    float* y = rows.y + i * width;
    const RowStatistics<float> s = statistics(x, width, rows.eps);
    const Normaliser normalised(s);
    std::int64_t j = 0;
    for (; j + lanes <= width; j += lanes) {
      const V w = hn::LoadU(d, rows.weight + j);
      const V n = normalised(x + j);
      hn::StoreU(
          rows.bias != nullptr ? hn::MulAdd(n, w, hn::LoadU(d, rows.bias + j)) : hn::Mul(n, w), d,
          y + j);
    }
    for (; j < width; ++j) {
      const float n = s.normalised(x[j]);
      y[j] = n * rows.weight[j] + (rows.bias != nullptr ? rows.bias[j] : 0.0F);
    }
  }
}

void add_to(float* p, V v) { hn::StoreU(hn::Add(hn::LoadU(d, p), v), d, p); }

void backward_rows(const LayerNormRows<float>& rows) {
  const std::int64_t width = rows.width;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float* w = rows.weight;
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    const float* x = rows.x + i * width;
    const float* dy = rows.dy + i * width;
    const RowStatistics<float> s = statistics(x, width, rows.eps);
    const Normaliser normalised(s);
    V sum_g_v = hn::Zero(d), dot_gn_v = hn::Zero(d);
    std::int64_t j = 0;
    for (; j + lanes <= width; j += lanes) {
      const V n = normalised(x + j);
      const V dy_v = hn::LoadU(d, dy + j);
      const V g = hn::Mul(dy_v, hn::LoadU(d, w + j));
      sum_g_v = hn::Add(sum_g_v, g);
      dot_gn_v = hn::MulAdd(g, n, dot_gn_v);
      if (rows.dweight != nullptr) add_to(rows.dweight + j, hn::Mul(dy_v, n));
      if (rows.dbias != nullptr) add_to(rows.dbias + j, dy_v);
    }
    float sum_g = hn::GetLane(hn::SumOfLanes(d, sum_g_v));
    float dot_gn = hn::GetLane(hn::SumOfLanes(d, dot_gn_v));
    for (; j < width; ++j) {
      const float n = s.normalised(x[j]), g = dy[j] * w[j];
      sum_g += g;
      dot_gn += g * n;
      if (rows.dweight != nullptr) rows.dweight[j] += dy[j] * n;
      if (rows.dbias != nullptr) rows.dbias[j] += dy[j];
    }
    if (rows.dx == nullptr) continue;
    float* dx = rows.dx + i * width;
    const float* dsum = row_or_null(rows.dsum, i, width);
    const float mean_g = sum_g / static_cast<float>(width);
    const float mean_gn = dot_gn / static_cast<float>(width);
    const V mean_g_v = hn::Set(d, mean_g), mean_gn_v = hn::Set(d, mean_gn);
    for (j = 0; j + lanes <= width; j += lanes) {
      const V g = hn::Mul(hn::LoadU(d, dy + j), hn::LoadU(d, w + j));
      const V centred = hn::NegMulAdd(normalised(x + j), mean_gn_v, hn::Sub(g, mean_g_v));
      const V of_norm = hn::Mul(normalised.r, centred);
      hn::StoreU(dsum != nullptr ? hn::Add(hn::LoadU(d, dsum + j), of_norm) : of_norm, d, dx + j);
    }
    for (; j < width; ++j) {
      const float of_norm = s.r * (dy[j] * w[j] - mean_g - s.normalised(x[j]) * mean_gn);
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

void forward_rows(const LayerNormRows<float>& rows) { HWY_DYNAMIC_DISPATCH(forward_rows)(rows); }
void backward_rows(const LayerNormRows<float>& rows) { HWY_DYNAMIC_DISPATCH(backward_rows)(rows); }

template <class T>
void forward_rows(const LayerNormRows<T>& rows) {
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    const T* x = residual_row(rows.x + i * rows.width, row_or_null(rows.delta, i, rows.width),
                              row_or_null(rows.sum, i, rows.width), rows.width);
    const RowStatistics<T> s = plain_statistics(x, rows.width, rows.eps);
    for (std::int64_t j = 0; j < rows.width; ++j) {
      rows.y[i * rows.width + j] =
          s.normalised(x[j]) * rows.weight[j] + (rows.bias != nullptr ? rows.bias[j] : T{0});
    }
  }
}

template <class T>
void backward_rows(const LayerNormRows<T>& rows) {
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    const T* x = rows.x + i * rows.width;
    const T* dy = rows.dy + i * rows.width;
    const RowStatistics<T> s = plain_statistics(x, rows.width, rows.eps);
    T sum_g = 0, dot_gn = 0;
    for (std::int64_t j = 0; j < rows.width; ++j) {
      const T n = s.normalised(x[j]), g = dy[j] * rows.weight[j];
      sum_g += g;
      dot_gn += g * n;
      if (rows.dweight != nullptr) rows.dweight[j] += dy[j] * n;
      if (rows.dbias != nullptr) rows.dbias[j] += dy[j];
    }
    if (rows.dx == nullptr) continue;
    const T mean_g = sum_g / static_cast<T>(rows.width);
    const T mean_gn = dot_gn / static_cast<T>(rows.width);
    T* dx = rows.dx + i * rows.width;
    const T* dsum = row_or_null(rows.dsum, i, rows.width);
    for (std::int64_t j = 0; j < rows.width; ++j) {
      const T of_norm = s.r * (dy[j] * rows.weight[j] - mean_g - s.normalised(x[j]) * mean_gn);
      dx[j] = dsum != nullptr ? dsum[j] + of_norm : of_norm;
    }
  }
}

void forward(ConstView x, ConstView delta, ConstView weight, ConstView bias, double eps, View sum,
             View y) {
  const std::int64_t width = weight.numel();
  if (x.numel() == 0) return;
  visit_floating(x.dtype, "layer_norm", [&]<class T>(TypeTag<T>) {
    const RowChunks chunks = layer_norm_chunks(x.numel() / width, DeviceType::cpu);
    parallel_chunks(chunks.count, [&](std::int64_t i) {
      LayerNormRows<T> rows{chunks.begin(i), chunks.end(i), width, eps};
      rows.x = x.as<T>(), rows.delta = delta.as<T>(), rows.weight = weight.as<T>();
      rows.bias = bias.as<T>(), rows.sum = sum.as<T>(), rows.y = y.as<T>();
      forward_rows(rows);
    });
  });
}

void backward(ConstView x, ConstView weight, ConstView dsum, ConstView dy, double eps, View dx,
              View dweight_parts, View dweight, bool add_dweight, View dbias_parts, View dbias,
              bool add_dbias) {
  const std::int64_t width = weight.numel();
  if (width == 0) return;
  visit_floating(x.dtype, "layer_norm", [&]<class T>(TypeTag<T>) {
    const RowChunks chunks = layer_norm_chunks(x.numel() / width, DeviceType::cpu);
    const auto zeroed_part = [&](const View& parts, std::int64_t chunk) -> T* {
      if (parts.data == nullptr) return nullptr;
      T* part = parts.as<T>() + chunk * width;
      std::fill_n(part, width, T{0});
      return part;
    };
    parallel_chunks(chunks.count, [&](std::int64_t i) {
      LayerNormRows<T> rows{chunks.begin(i), chunks.end(i), width, eps};
      rows.x = x.as<T>(), rows.weight = weight.as<T>(), rows.dsum = dsum.as<T>();
      rows.dy = dy.as<T>(), rows.dx = dx.as<T>();
      rows.dweight = zeroed_part(dweight_parts, i), rows.dbias = zeroed_part(dbias_parts, i);
      backward_rows(rows);
    });
    if (dweight.data != nullptr) {
      sum_parts(dweight_parts.as<T>(), chunks.count, width, dweight.as<T>(), add_dweight);
    }
    if (dbias.data != nullptr) {
      sum_parts(dbias_parts.as<T>(), chunks.count, width, dbias.as<T>(), add_dbias);
    }
  });
}

}  // namespace

extern const LayerNormKernels layer_norm_cpu{forward, backward};

}  // namespace duet
#endif
