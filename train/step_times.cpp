#include "train/step_times.h"

#include <algorithm>

namespace duet {

bool StepTimes::Recent::is_far_above(double value) const {
  constexpr double kFar = 100, kNoticeable = 1;
  if (seconds.empty() || value <= kNoticeable) return false;
  std::vector<double> sorted = seconds;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return value > kFar * *middle;
}

void StepTimes::Recent::add(double value) {
  if (seconds.size() < kKept) {
    seconds.push_back(value);
  } else {
    seconds[next] = value;
  }
  next = (next + 1) % kKept;
}

bool StepTimes::add(double seconds, bool evaluated) {
  Recent& alike = evaluated ? evaluated_ : plain_;
  const bool far = alike.is_far_above(seconds);
  alike.add(seconds);
  if (far) return false;
  total_ += seconds;
  ++counted_;
  return true;
}

}  // namespace duet
