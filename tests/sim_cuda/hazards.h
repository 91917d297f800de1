// Finds operations of two streams that touch the same memory with nothing that orders them. Every
// stream, and the host, has a vector clock: what it knows to have happened. An access is right if
// the clock of its stream covers the accesses before it.
#pragma once

#include <cstdint>
#include <vector>

namespace sim {

// How far each stream is known to have come, by stream number.
class Clock {
 public:
  void join(const Clock& other);   // knows what either knew
  std::uint64_t tick(int stream);  // one more operation of `stream`; its time
  bool covers(int stream, std::uint64_t time) const;

 private:
  std::vector<std::uint64_t> times_;
};

struct Access {
  int stream = -1;
  std::uint64_t time = 0;
  const char* what = "";
};

// Of one allocation: its last write, and the last read of each stream since.
class History {
 public:
  // Notes an access by an operation of `stream` whose clock, its own time included, is `clock`.
  // Fails if an earlier access of another stream is unordered with it, unless both only read.
  void note(int allocation, bool write, const Access& now, const Clock& clock);

 private:
  Access write_;
  std::vector<Access> reads_;
};

}  // namespace sim
