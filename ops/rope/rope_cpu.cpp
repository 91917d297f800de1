// CPU kernels of rope: a plain loop for f64 and for gaps in D, Highway for f32 rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rope/rope_cpu.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per target
//
#include "hwy/highway.h"
//
#include <algorithm>
#include <cmath>

#include "ops/rope/rope.h"
#include "runtime/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace duet {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// One head of one token: x, y [2, half] contiguous; sin already carries the direction's sign.
void rotate_row(const float* x, const float* cos, const float* sin, float sign, std::int64_t half,
                float* y) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto sign_v = hn::Set(d, sign);
  std::int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    const auto x1 = hn::LoadU(d, x + i);
    const auto x2 = hn::LoadU(d, x + half + i);
    const auto c = hn::LoadU(d, cos + i);
    const auto s = hn::Mul(sign_v, hn::LoadU(d, sin + i));
    hn::StoreU(hn::NegMulAdd(x2, s, hn::Mul(x1, c)), d, y + i);
    hn::StoreU(hn::MulAdd(x1, s, hn::Mul(x2, c)), d, y + half + i);
  }
  for (; i < half; ++i) {
    const float x1 = x[i], x2 = x[half + i], s = sign * sin[i];
    y[i] = x1 * cos[i] - x2 * s;
    y[half + i] = x2 * cos[i] + x1 * s;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace duet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace duet {
namespace {

HWY_EXPORT(rotate_row);

constexpr std::int64_t kGrain = 1 << 15;  // elements of a chunk

void table(double theta, View out) {
  visit_floating(out.dtype, "rope_table", [&]<class T>(TypeTag<T>) {
    const std::int64_t half = out.size(2);
    parallel_for(out.size(0), std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(16, half)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t t = begin; t < end; ++t) {
                     T* row = out.as<T>() + t * 2 * half;
                     for (std::int64_t i = 0; i < half; ++i) {
                       const double exponent = -static_cast<double>(i) / static_cast<double>(half);
                       const double angle = static_cast<double>(t) * std::pow(theta, exponent);
                       row[i] = static_cast<T>(std::cos(angle));
                       row[half + i] = static_cast<T>(std::sin(angle));
                     }
                   }
                 });
  });
}

template <class T>
void rotate_strided(const T* x, std::int64_t step, const T* cos, std::int64_t cos_step,
                    const T* sin, T sign, std::int64_t half, T* y) {
  for (std::int64_t i = 0; i < half; ++i) {
    const T x1 = x[i * step], x2 = x[(half + i) * step];
    const T c = cos[i * cos_step], s = sign * sin[i * cos_step];
    y[i] = x1 * c - x2 * s;
    y[half + i] = x2 * c + x1 * s;
  }
}

void rotate(ConstView x, ConstView angles, std::int64_t position, bool inverse, View y) {
  const std::int64_t time = x.size(1), heads = x.size(2), width = x.size(3), half = width / 2;
  const std::int64_t per_token = std::max<std::int64_t>(1, heads * width);
  const bool dense = x.stride(3) == 1 && angles.stride(2) == 1;
  if (x.numel() == 0) return;
  visit_floating(x.dtype, "rope", [&]<class T>(TypeTag<T>) {
    const T sign = inverse ? T(-1) : T(1);
    const auto token = [&](std::int64_t n) {
      const std::int64_t b = n / time, t = n % time;
      const T* cos = angles.as<T>() + (position + t) * angles.stride(0);
      const T* sin = cos + angles.stride(1);
      for (std::int64_t h = 0; h < heads; ++h) {
        const T* in = x.as<T>() + b * x.stride(0) + t * x.stride(1) + h * x.stride(2);
        T* out = y.as<T>() + (n * heads + h) * width;
        if constexpr (std::is_same_v<T, float>) {
          if (dense) {
            HWY_DYNAMIC_DISPATCH(rotate_row)(in, cos, sin, sign, half, out);
            continue;
          }
        }
        rotate_strided(in, x.stride(3), cos, angles.stride(2), sin, sign, half, out);
      }
    };
    parallel_for(x.size(0) * time, std::max<std::int64_t>(1, kGrain / per_token),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t n = begin; n < end; ++n) token(n);
                 });
  });
}

}  // namespace

extern const RopeKernels rope_cpu{table, rotate};

}  // namespace duet
#endif  // HWY_ONCE
