// A replay of recorded events gives the recorded allocator's figures to the byte.
#include "runtime/memory_replay.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "runtime/cpu/host_source.h"
#include "runtime/meta_source.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/fake_training.h"
#include "tests/runtime/memory_recorder.h"

namespace duet::test {
namespace {

std::size_t live_bytes(const std::vector<MemoryMapSegment>& map) {
  std::size_t bytes = 0;
  for (const MemoryMapSegment& segment : map) {
    for (const MemoryMapBlock& block : segment.blocks) bytes += block.free ? 0 : block.bytes;
  }
  return bytes;
}
std::size_t all_bytes(const std::vector<MemoryMapSegment>& map) {
  std::size_t bytes = 0;
  for (const MemoryMapSegment& segment : map) bytes += segment.bytes;
  return bytes;
}

TEST(MemoryReplay, GivesTheFiguresOfHostAndMeta) {
  for (const bool on_host : {true, false}) {
    std::unique_ptr<RawSource> source = std::make_unique<MetaSource>();
    if (on_host) source = std::make_unique<HostSource>();
    CachingAllocator memory(std::move(source), "recorded");
    const MemoryRecorder recorder(memory);
    std::mt19937 random(5);
    {
      FakeTraining training(memory);
      for (int i = 0; i < 8; ++i) training.step(40 + random() % 300);
    }
    const MemoryReplay r = replay(recorder.events);
    const MemoryStats stats = memory.stats();
    EXPECT_EQ(r.events, recorder.events.size());
    EXPECT_EQ(r.peak_allocated, stats.peak_allocated);
    EXPECT_EQ(r.peak_reserved, stats.peak_reserved);
    EXPECT_EQ(r.allocations, stats.allocations);
    EXPECT_EQ(r.raw_allocations, stats.raw_allocations);
    ASSERT_LT(r.peak_event, recorder.events.size());
    EXPECT_EQ(r.reserved_at_peak, recorder.events[r.peak_event].reserved);
    EXPECT_EQ(live_bytes(r.map), r.peak_allocated);
    EXPECT_EQ(all_bytes(r.map), r.reserved_at_peak);
    EXPECT_EQ(r.fragmentation(), r.reserved_at_peak - r.peak_allocated);
    EXPECT_LE(r.largest_free_at_peak, r.fragmentation());
    EXPECT_EQ(all_bytes(replay(recorder.events, recorder.events.size() - 1).map), stats.reserved);
  }
}

// The numbers in the map are those of the events, not the replay's own.
TEST(MemoryReplay, MapsBlocksByTheirRecordedNumbers) {
  using enum MemoryEvent::Type;
  const auto event = [](MemoryEvent::Type type, std::uint64_t block, std::size_t asked) {
    return MemoryEvent{type, MemoryKind::temporary, 0, block, asked, 0, 0, nullptr};
  };
  const std::vector<MemoryEvent> events{
      event(free, 12, 0),  // made before the recording
      event(allocate, 70, 600), event(mark, 70, 0),        event(allocate, 71, 0),
      event(free, 70, 600),     event(allocate, 90, 1000),
  };
  const MemoryReplay r = replay(events);
  EXPECT_EQ(r.peak_allocated, 1536U);
  EXPECT_EQ(r.peak_event, 3U);  // when it first stood there
  ASSERT_EQ(r.map.size(), 1U);
  ASSERT_EQ(r.map[0].blocks.size(), 3U);
  EXPECT_EQ(r.map[0].blocks[0].number, 70U);
  EXPECT_EQ(r.map[0].blocks[1].number, 71U);
  EXPECT_TRUE(r.map[0].blocks[2].free);
  EXPECT_EQ(r.fragmentation(), (std::size_t{2} << 20) - 1536);
  EXPECT_EQ(replay(events, 5).map[0].blocks[0].number, 90U);
  EXPECT_EQ(replay({}).peak_allocated, 0U);
  EXPECT_TRUE(replay({}).map.empty());

  const std::vector<MemoryEvent> twice{events[1], events[1]};
  expect_in("replay: block 70 is allocated again",
            error_of(ErrorKind::internal, [&] { replay(twice); }));
  const std::vector<MemoryEvent> huge{event(allocate, 1, std::size_t{1} << 63)};
  expect_in("out of memory", error_of(ErrorKind::memory, [&] { replay(huge); }));
}

}  // namespace
}  // namespace duet::test
