#include "train/lab/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

namespace duet {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// The continued fraction of the incomplete beta function, by Lentz's method (Numerical Recipes in
// C, 6.4). Converges fast for x < (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300, kClose = 1e-15;
  constexpr int kMostTerms = 500;
  const auto away_from_zero = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1;
  double d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
  double sum = d;
  for (int m = 1; m <= kMostTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    sum *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    sum *= d * c;
    if (std::abs(d * c - 1) < kClose) break;
  }
  return sum;
}

// I_x(a, b), the regularised incomplete beta function.
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                   : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

}  // namespace

double sample_mean(const std::vector<double>& values) {
  if (values.empty()) return kNone;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double sample_median(std::vector<double> values) {
  if (values.empty()) return kNone;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double sample_deviation(const std::vector<double>& values) {
  if (values.size() < 2) return kNone;
  const double center = sample_mean(values);
  double sum = 0;
  for (const double v : values) sum += (v - center) * (v - center);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double student_t_cdf(double t, double freedom) {
  const double tail = incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2;
  return t > 0 ? 1 - tail : tail;
}

double student_t_quantile(double probability, double freedom) {
  if (probability == 0.5) return 0;
  if (probability < 0.5) return -student_t_quantile(1 - probability, freedom);
  double low = 0, high = 1;
  while (student_t_cdf(high, freedom) < probability) high *= 2;
  for (int i = 0; i < 200 && low < high; ++i) {  // halves the bracket down to one rounding step
    const double middle = low + (high - low) / 2;
    (student_t_cdf(middle, freedom) < probability ? low : high) = middle;
  }
  return high;
}

PairedDifference paired_difference(const std::vector<double>& differences) {
  PairedDifference out{differences.size(), sample_mean(differences), std::nullopt};
  if (differences.size() < 2) return out;
  const auto n = static_cast<double>(differences.size());
  out.half_width = student_t_quantile(0.975, n - 1) * sample_deviation(differences) / std::sqrt(n);
  return out;
}

}  // namespace duet
