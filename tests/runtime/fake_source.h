// A raw source without memory that remembers what it gave, refuses on demand, and fails the test
// when something comes back that it did not give.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <set>

#include "runtime/allocator.h"

namespace duet::test {

class FakeSource final : public RawSource {
 public:
  explicit FakeSource(std::size_t part_bytes = 0) : part_(part_bytes) {}
  ~FakeSource() override { EXPECT_EQ(held_bytes(), 0U) << "memory was not given back"; }

  void* allocate(std::size_t bytes) noexcept override {
    ++calls;
    if (calls >= fail_from && calls < fail_from + fail_count) return nullptr;
    if (held_bytes() + bytes > capacity) return nullptr;
    const std::uintptr_t begin = next_;
    next_ += (bytes + kAlign - 1) / kAlign * kAlign + kAlign;  // segments never touch
    held_[begin] = begin + bytes;
    return reinterpret_cast<void*>(begin);
  }
  void deallocate(void* data, std::size_t bytes) noexcept override {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    const std::uintptr_t end = begin + bytes;
    auto it = held_.upper_bound(begin);
    ASSERT_NE(it, held_.begin()) << "never given";
    --it;
    const auto [segment_begin, segment_end] = *it;
    ASSERT_LE(end, segment_end) << "more than was given";
    if (part_ == 0) {
      ASSERT_TRUE(begin == segment_begin && end == segment_end) << "a part of a segment";
    } else {
      ASSERT_TRUE(begin == segment_begin || begin % part_ == 0);
      ASSERT_TRUE(end == segment_end || end % part_ == 0);
    }
    held_.erase(it);
    if (segment_begin < begin) held_[segment_begin] = begin;
    if (end < segment_end) held_[end] = segment_end;
  }
  std::size_t part_bytes() const noexcept override { return part_; }

  // Work on a stream is done when the test says so: finish().
  EventId record(StreamId stream) noexcept override {
    pending_[++last_event_] = stream;
    return last_event_;
  }
  bool passed(EventId event) noexcept override { return pending_.count(event) == 0; }
  void wait(EventId event) noexcept override { waits += pending_.erase(event) > 0 ? 1 : 0; }
  void finish(StreamId stream) {
    std::erase_if(pending_, [&](const auto& entry) { return entry.second == stream; });
  }
  std::size_t pending_events() const { return pending_.size(); }

  std::size_t held_bytes() const {
    std::size_t bytes = 0;
    for (const auto& [begin, end] : held_) bytes += end - begin;
    return bytes;
  }
  bool holds(const void* data, std::size_t bytes) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    auto it = held_.upper_bound(begin);
    return it != held_.begin() && begin + bytes <= (--it)->second;
  }

  std::size_t capacity = std::numeric_limits<std::size_t>::max();
  int calls = 0;
  int waits = 0;                                    // for work that was not done
  int fail_from = std::numeric_limits<int>::max();  // the first call that fails, counted from 1
  int fail_count = 0;

 private:
  static constexpr std::uintptr_t kAlign = std::uintptr_t{2} << 20;
  std::size_t part_;
  std::uintptr_t next_ = std::uintptr_t{1} << 40;
  std::map<std::uintptr_t, std::uintptr_t> held_;  // begin -> end
  EventId last_event_ = 0;
  std::map<EventId, StreamId> pending_;
};

}  // namespace duet::test
