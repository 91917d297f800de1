// What recorded requests cost under the policy: the same calls, in the same order, to a
// CachingAllocator over meta. No memory is needed, and since meta decides as the host does, the
// figures are those of the recorded allocator to the byte, if it was fresh when recording began.
//
//   std::vector<MemoryEvent> events;          // from a MemoryListener
//   const MemoryReplay r = replay(events);    // r.map: the segments at the peak
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/caching_allocator.h"
#include "runtime/memory_events.h"

namespace duet {

struct MemoryReplay {
  std::size_t events = 0;
  std::size_t peak_allocated = 0;
  std::size_t peak_reserved = 0;
  std::uint64_t allocations = 0;
  std::uint64_t raw_allocations = 0;  // requests that had to ask the source
  // When `allocated` first stood at its peak: the event that brought it there, and after it
  std::size_t peak_event = 0;
  std::size_t reserved_at_peak = 0;
  std::size_t largest_free_at_peak = 0;
  // The segments after `map_after`; the blocks' numbers are the events'.
  std::vector<MemoryMapSegment> map;

  // Bytes that were held and not live at the peak.
  std::size_t fragmentation() const { return reserved_at_peak - peak_allocated; }
};

inline constexpr std::size_t kAtPeak = std::numeric_limits<std::size_t>::max();

// The map is that after event number `map_after` (from 0). Blocks made before the first event are
// unknown: their frees are left out. Throws Error(memory) if the requests exceed the limit (0:
// none) or all address space.
MemoryReplay replay(std::span<const MemoryEvent> events, std::size_t map_after = kAtPeak,
                    std::size_t limit = 0);

// The same, event by event: for traces too long to hold.
class MemoryReplayer {
 public:
  explicit MemoryReplayer(std::size_t limit = 0);  // see Allocator::set_limit
  void apply(const MemoryEvent& event);
  MemoryReplay result() const;  // of the events so far, without the map
  std::vector<MemoryMapSegment> map() const;

 private:
  CachingAllocator memory_;
  std::unordered_map<std::uint64_t, Block*> live_;  // by the events' numbers
  MemoryReplay seen_;
};

}  // namespace duet
