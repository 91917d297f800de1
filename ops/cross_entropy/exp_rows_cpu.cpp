// Exponentials over rows of logits: a plain loop (f64) and a vector loop (f32).
#include <algorithm>
#include <cmath>

#include "ops/cross_entropy/exp_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cross_entropy/exp_rows_cpu.cpp"
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

float largest_of(const float* x, std::int64_t n) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V a = hn::Set(d, -std::numeric_limits<float>::infinity());
  V b = a;
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    a = hn::Max(a, hn::LoadU(d, x + i));
    b = hn::Max(b, hn::LoadU(d, x + i + lanes));
  }
  float largest = hn::GetLane(hn::MaxOfLanes(d, hn::Max(a, b)));
  for (; i < n; ++i) largest = std::max(largest, x[i]);
  return largest;
}

double exp_sum_of(const float* x, std::int64_t n, float largest) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V shift = hn::Set(d, largest);
  V a = hn::Zero(d);
  V b = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    a = hn::Add(a, exp_or_nan(hn::Sub(hn::LoadU(d, x + i), shift)));
    b = hn::Add(b, exp_or_nan(hn::Sub(hn::LoadU(d, x + i + lanes), shift)));
  }
  auto sum = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b))));
  for (; i < n; ++i) sum += static_cast<double>(std::exp(x[i] - largest));
  return sum;
}

void scaled_exp_of(const float* x, std::int64_t n, float largest, float factor, float* y) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V shift = hn::Set(d, largest);
  const V f = hn::Set(d, factor);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(exp_or_nan(hn::Sub(hn::LoadU(d, x + i), shift)), f), d, y + i);
  }
  for (; i < n; ++i) y[i] = std::exp(x[i] - largest) * factor;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace duet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace duet {
namespace {

HWY_EXPORT(largest_of);
HWY_EXPORT(exp_sum_of);
HWY_EXPORT(scaled_exp_of);

// Values summed in float before the sum goes to double: few enough to keep 7 digits, and short
// enough that the second look at them comes from the first-level cache.
constexpr std::int64_t kBlock = 2048;

float block_largest(const float* x, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(largest_of)(x, n);
}
double block_largest(const double* x, std::int64_t n) { return *std::max_element(x, x + n); }

double block_exp_sum(const float* x, std::int64_t n, double largest) {
  return HWY_DYNAMIC_DISPATCH(exp_sum_of)(x, n, static_cast<float>(largest));
}
double block_exp_sum(const double* x, std::int64_t n, double largest) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - largest);
  return sum;
}

template <class T>
void add_blocks(const T* x, std::int64_t n, ExpSum& row) {
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t size = std::min(kBlock, n - begin);
    const double largest =
        std::max(row.largest, static_cast<double>(block_largest(x + begin, size)));
    // Where all is -inf so far, exp(-inf - 0) = 0; -inf - -inf would be NaN.
    const double shift = std::isinf(largest) && largest < 0 ? 0 : largest;
    if (row.sum != 0) row.sum *= std::exp(row.largest - shift);
    row.sum += block_exp_sum(x + begin, size, shift);
    row.largest = largest;
  }
}

}  // namespace

void add_exp_sum(const float* x, std::int64_t n, ExpSum& row) { add_blocks(x, n, row); }
void add_exp_sum(const double* x, std::int64_t n, ExpSum& row) { add_blocks(x, n, row); }

void scaled_exp(const float* x, std::int64_t n, double largest, double factor, float* y) {
  HWY_DYNAMIC_DISPATCH(scaled_exp_of)
  (x, n, static_cast<float>(largest), static_cast<float>(factor), y);
}
void scaled_exp(const double* x, std::int64_t n, double largest, double factor, double* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = std::exp(x[i] - largest) * factor;
}

}  // namespace duet
#endif
