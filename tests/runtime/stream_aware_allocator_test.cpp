// Blocks that several streams use, and blocks that come straight from the source.
#include <gtest/gtest.h>

#include <random>

#include "runtime/caching_allocator.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/fake_source.h"

namespace duet::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

struct Fixture {
  Fixture() : Fixture(std::make_unique<FakeSource>()) {}
  explicit Fixture(std::unique_ptr<FakeSource> s) : source(*s), memory(std::move(s), "fake") {}
  FakeSource& source;
  CachingAllocator memory;
};

TEST(StreamAwareAllocator, ABlockWaitsForTheOtherStream) {
  Fixture f;
  Block* a = f.memory.allocate(2 * kMiB);
  const void* data = f.memory.data(a);
  f.memory.used_on(a, 3);
  f.memory.deallocate(a);
  EXPECT_EQ(f.memory.stats().allocated, 0U);
  EXPECT_EQ(f.memory.stats().largest_free, 0U);
  ASSERT_EQ(f.memory.map().size(), 1U);
  EXPECT_TRUE(f.memory.map()[0].blocks[0].free);
  Block* b = f.memory.allocate(2 * kMiB);
  EXPECT_NE(f.memory.data(b), data);
  f.source.finish(3);
  Block* c = f.memory.allocate(2 * kMiB);
  EXPECT_EQ(f.memory.data(c), data);
  EXPECT_EQ(f.source.waits, 0);
  f.memory.deallocate(b);
  f.memory.deallocate(c);  // nobody used it elsewhere this time
  EXPECT_EQ(f.source.pending_events(), 0U);
  EXPECT_EQ(f.memory.stats().largest_free, 2 * kMiB);
}

TEST(StreamAwareAllocator, TheComputeStreamNeedsNoEvent) {
  Fixture f;
  Block* a = f.memory.allocate(2 * kMiB);
  f.memory.used_on(a, kComputeStream);
  f.memory.deallocate(a);
  EXPECT_EQ(f.source.pending_events(), 0U);
  EXPECT_EQ(f.memory.stats().largest_free, 2 * kMiB);
}

TEST(StreamAwareAllocator, SeveralStreamsAreWaitedForOneAfterTheOther) {
  Fixture f;
  Block* a = f.memory.allocate(2 * kMiB);
  const void* data = f.memory.data(a);
  f.memory.used_on(a, 1);
  f.memory.used_on(a, 5);
  f.memory.deallocate(a);
  f.source.finish(1);
  Block* b = f.memory.allocate(2 * kMiB);  // stream 5 still works
  EXPECT_NE(f.memory.data(b), data);
  f.source.finish(5);
  Block* c = f.memory.allocate(2 * kMiB);
  EXPECT_EQ(f.memory.data(c), data);
  f.memory.deallocate(b);
  f.memory.deallocate(c);
}

TEST(StreamAwareAllocator, WaitsBeforeMemoryCountsAsExhausted) {
  Fixture f;
  f.source.capacity = 4 * kMiB;
  Block* a = f.memory.allocate(3 * kMiB);
  f.memory.used_on(a, 1);
  f.memory.deallocate(a);
  Block* b = f.memory.allocate(2 * kMiB);
  EXPECT_EQ(f.source.waits, 1);
  f.memory.used_on(b, 2);
  error_of(ErrorKind::memory, [&] { f.memory.allocate(3 * kMiB); });
  f.memory.deallocate(b);
  f.memory.empty_cache();
  EXPECT_EQ(f.source.waits, 2);
  EXPECT_EQ(f.source.held_bytes(), 0U);
}

TEST(StreamAwareAllocator, ParkedNeighboursMergeWhenTheyReturn) {
  Fixture f;
  std::vector<Block*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(f.memory.allocate(kMiB / 2));
  for (Block* b : blocks) f.memory.used_on(b, 1);
  for (const int i : {1, 3, 0, 2}) f.memory.deallocate(blocks[static_cast<std::size_t>(i)]);
  f.source.finish(1);
  Block* whole = f.memory.allocate(2 * kMiB);
  EXPECT_EQ(f.source.calls, 1);
  f.memory.deallocate(whole);
}

TEST(StreamAwareAllocator, NoBlockReturnsBeforeItsStreamIsDone) {
  Fixture f;
  f.source.capacity = 24 * kMiB;
  std::mt19937 random(3);
  struct Busy {
    std::uintptr_t begin, end;
    StreamId stream;
  };
  std::vector<Busy> busy;  // freed while the stream may still use it
  std::vector<Block*> live;
  std::vector<StreamId> used;
  for (int step = 0; step < 4000; ++step) {
    const auto action = random() % 100;
    if (action < 50) {
      const std::size_t bytes = random() % kMiB + 1;
      const int waits = f.source.waits;
      try {
        live.push_back(f.memory.allocate(bytes));
      } catch (const Error&) {
        busy.clear();
        continue;
      }
      if (f.source.waits != waits) busy.clear();  // it waited for all
      const auto begin = reinterpret_cast<std::uintptr_t>(f.memory.data(live.back()));
      for (const Busy& b : busy) ASSERT_TRUE(begin + bytes <= b.begin || b.end <= begin);
      used.push_back(static_cast<StreamId>(random() % 3));
      f.memory.used_on(live.back(), used.back());
    } else if (action < 96 && !live.empty()) {
      const std::size_t i = random() % live.size();
      const auto begin = reinterpret_cast<std::uintptr_t>(f.memory.data(live[i]));
      if (used[i] != kComputeStream) busy.push_back({begin, begin + live[i]->size, used[i]});
      f.memory.deallocate(live[i]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
      used.erase(used.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      const auto stream = static_cast<StreamId>(1 + random() % 2);
      f.source.finish(stream);
      std::erase_if(busy, [&](const Busy& b) { return b.stream == stream; });
    }
  }
  for (Block* b : live) f.memory.deallocate(b);
  f.memory.empty_cache();
  EXPECT_EQ(f.source.held_bytes(), 0U);
}

TEST(PassThrough, EveryBlockIsTheSourcesOwn) {
  Fixture f;
  f.memory.deallocate(f.memory.allocate(3 * kMiB));
  EXPECT_FALSE(f.memory.set_pass_through(true));
  EXPECT_EQ(f.source.held_bytes(), 0U);  // the cache went back
  const int calls = f.source.calls;
  Block* a = f.memory.allocate(100);
  Block* b = f.memory.allocate(0);
  EXPECT_EQ(f.source.calls, calls + 2);
  EXPECT_EQ(f.source.held_bytes(), 101U);  // the bytes asked for, so that a guard is next to them
  EXPECT_EQ(f.memory.stats().allocated, 1024U);  // the counters are those of every other run
  EXPECT_EQ(f.memory.stats().reserved, 1024U);
  f.memory.used_on(a, 1);
  f.memory.deallocate(a);
  EXPECT_EQ(f.source.held_bytes(), 101U);
  f.source.finish(1);
  EXPECT_TRUE(f.memory.set_pass_through(false));
  Block* c = f.memory.allocate(100);
  f.memory.deallocate(b);
  EXPECT_EQ(f.source.held_bytes(), 2 * kMiB);
  EXPECT_EQ(f.memory.stats().reserved, 2 * kMiB);
  f.memory.deallocate(c);
}

TEST(PassThrough, ObeysTheLimits) {
  Fixture f;
  f.memory.set_pass_through(true);
  f.memory.set_limit(kMiB);
  Block* a = f.memory.allocate(kMiB / 2);
  error_of(ErrorKind::memory, [&] { f.memory.allocate(kMiB); });
  f.memory.used_on(a, 1);
  f.memory.deallocate(a);
  Block* b = f.memory.allocate(kMiB);  // after waiting for stream 1
  EXPECT_EQ(f.source.waits, 1);
  f.memory.deallocate(b);
}

}  // namespace
}  // namespace duet::test
