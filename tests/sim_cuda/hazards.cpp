// Vector clocks, and the check of an access against those before it.
#include "tests/sim_cuda/hazards.h"

#include <algorithm>

#include "tests/sim_cuda/engine.h"

namespace sim {

void Clock::join(const Clock& other) {
  if (times_.size() < other.times_.size()) times_.resize(other.times_.size());
  for (std::size_t i = 0; i < other.times_.size(); ++i) {
    times_[i] = std::max(times_[i], other.times_[i]);
  }
}

std::uint64_t Clock::tick(int stream) {
  const auto index = static_cast<std::size_t>(stream);
  if (times_.size() <= index) times_.resize(index + 1);
  return ++times_[index];
}

bool Clock::covers(int stream, std::uint64_t time) const {
  const auto index = static_cast<std::size_t>(stream);
  return index < times_.size() && times_[index] >= time;
}

namespace {

void check_ordered(int allocation, bool write, const Access& now, const Clock& clock,
                   const char* earlier_kind, const Access& earlier) {
  if (earlier.stream < 0 || earlier.stream == now.stream ||
      clock.covers(earlier.stream, earlier.time)) {
    return;
  }
  fail(
      "stream hazard: %s on stream %d %s allocation #%d, unordered with the %s by %s on stream %d; "
      "record an event there and wait for it here",
      now.what, now.stream, write ? "writes" : "reads", allocation, earlier_kind, earlier.what,
      earlier.stream);
}

}  // namespace

void History::note(int allocation, bool write, const Access& now, const Clock& clock) {
  check_ordered(allocation, write, now, clock, "write", write_);
  if (write) {
    for (const Access& read : reads_) {
      check_ordered(allocation, write, now, clock, "read", read);
    }
    write_ = now;
    reads_.clear();
    return;
  }
  for (Access& read : reads_) {
    if (read.stream == now.stream) {
      read = now;
      return;
    }
  }
  reads_.push_back(now);
}

}  // namespace sim
