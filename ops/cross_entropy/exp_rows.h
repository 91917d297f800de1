// Rows of exponentials: what cross_entropy and linear_cross_entropy do to a row of logits, in parts
// of any length. NaN stays NaN; -inf counts nothing.
#pragma once

#include <cstdint>
#include <limits>

namespace duet {

// The largest value of a row so far and the sum of exp(value - largest).
struct ExpSum {
  double largest = -std::numeric_limits<double>::infinity();
  double sum = 0;
};

// Takes n more values of the row into account.
void add_exp_sum(const float* x, std::int64_t n, ExpSum& row);
void add_exp_sum(const double* x, std::int64_t n, ExpSum& row);

// y = exp(x - largest) * factor; y may be x
void scaled_exp(const float* x, std::int64_t n, double largest, double factor, float* y);
void scaled_exp(const double* x, std::int64_t n, double largest, double factor, double* y);

}  // namespace duet
