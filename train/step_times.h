// How long steps take, for averages and the time that remains. A step during which the process was
// suspended (Ctrl-Z, a debugger, a machine that slept) says nothing about the others.
#pragma once

#include <cstdint>
#include <vector>

namespace duet {

class StepTimes {
 public:
  // The seconds since the step before, `evaluated` if an evaluation was among them. False when they
  // are left out: more than 100 times the median of those before, and more than a second.
  bool add(double seconds, bool evaluated);
  bool empty() const { return counted_ == 0; }
  double mean() const { return total_ / static_cast<double>(counted_); }

 private:
  static constexpr std::size_t kKept = 31;
  // The newest of one sort, oldest overwritten first.
  struct Recent {
    std::vector<double> seconds;
    std::size_t next = 0;
    bool is_far_above(double value) const;
    void add(double value);
  };
  Recent plain_, evaluated_;
  double total_ = 0;
  std::int64_t counted_ = 0;
};

}  // namespace duet
