// The few statistics of a report: location, spread, and the interval of paired differences.
#pragma once

#include <optional>
#include <vector>

namespace duet {

double sample_mean(const std::vector<double>& values);  // NaN of none
double sample_median(std::vector<double> values);       // NaN of none
double sample_deviation(
    const std::vector<double>& values);  // of a sample (n - 1); NaN below two values

// P(T <= t) of Student's t with `freedom` degrees of freedom, and its inverse.
double student_t_cdf(double t, double freedom);
double student_t_quantile(double probability, double freedom);

// The mean of differences taken pair by pair, and the half width of its 95 % interval:
//   mean(d) +- t(0.975; n - 1) * deviation(d) / sqrt(n)
struct PairedDifference {
  std::size_t pairs = 0;
  double mean = 0;
  std::optional<double> half_width;  // nothing for a single pair
};
PairedDifference paired_difference(const std::vector<double>& differences);

}  // namespace duet
