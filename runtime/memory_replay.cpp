#include "runtime/memory_replay.h"

#include <memory>

#include "runtime/error.h"
#include "runtime/meta_source.h"

namespace duet {

MemoryReplayer::MemoryReplayer(std::size_t limit)
    : memory_(std::make_unique<MetaSource>(), "replay") {
  memory_.set_limit(limit);
}

void MemoryReplayer::apply(const MemoryEvent& event) {
  const std::size_t index = seen_.events++;
  if (event.type == MemoryEvent::Type::allocate) {
    const auto [entry, added] = live_.try_emplace(event.block, nullptr);
    check(added, ErrorKind::internal, "replay: block ", event.block,
          " is allocated again: got a live block, expected a new number; record one allocator");
    try {
      entry->second = memory_.allocate(event.asked);
    } catch (...) {
      live_.erase(entry);
      throw;
    }
    const MemoryStats stats = memory_.stats();
    if (stats.peak_allocated > seen_.peak_allocated) {
      seen_.peak_allocated = stats.peak_allocated;
      seen_.peak_event = index;
      seen_.reserved_at_peak = stats.reserved;
      seen_.largest_free_at_peak = stats.largest_free;
    }
  } else if (event.type == MemoryEvent::Type::free) {
    const auto entry = live_.find(event.block);
    if (entry == live_.end()) return;
    memory_.deallocate(entry->second);
    live_.erase(entry);
  }
}

MemoryReplay MemoryReplayer::result() const {
  const MemoryStats stats = memory_.stats();
  MemoryReplay result = seen_;
  result.peak_reserved = stats.peak_reserved;
  result.allocations = stats.allocations;
  result.raw_allocations = stats.raw_allocations;
  return result;
}

std::vector<MemoryMapSegment> MemoryReplayer::map() const {
  std::unordered_map<std::uint64_t, std::uint64_t> numbers;  // the allocator's -> the events'
  for (const auto& [number, block] : live_) numbers[block->number] = number;
  std::vector<MemoryMapSegment> segments = memory_.map();
  for (MemoryMapSegment& segment : segments) {
    for (MemoryMapBlock& block : segment.blocks) {
      if (!block.free) block.number = numbers.at(block.number);
    }
  }
  return segments;
}

MemoryReplay replay(std::span<const MemoryEvent> events, std::size_t map_after, std::size_t limit) {
  MemoryReplayer whole(limit);
  std::vector<MemoryMapSegment> map;
  for (std::size_t i = 0; i < events.size(); ++i) {
    whole.apply(events[i]);
    if (i == map_after) map = whole.map();
  }
  MemoryReplay result = whole.result();
  if (map_after == kAtPeak && !events.empty()) {
    MemoryReplayer again(limit);  // where the peak is, shows only at the end
    for (const MemoryEvent& event : events.first(result.peak_event + 1)) again.apply(event);
    map = again.map();
  }
  result.map = std::move(map);
  return result;
}

}  // namespace duet
