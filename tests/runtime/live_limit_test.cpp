// A limit on live bytes: exact, whatever the history of the cache.
#include "runtime/live_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "runtime/caching_allocator.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/fake_source.h"

namespace duet::test {
namespace {

constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr std::size_t kPart = 64 * kKiB;

// An allocator over a FakeSource that the test can still reach.

struct Fixture {
  Fixture() : Fixture(std::make_unique<FakeSource>(kPart)) {}
  explicit Fixture(std::unique_ptr<FakeSource> s) : source(*s), memory(std::move(s), "fake") {}
  FakeSource& source;
  CachingAllocator memory;
};

TEST(LiveLimit, IsExact) {
  Fixture f;
  f.memory.set_live_limit(10 * kMiB);
  Block* a = f.memory.allocate(10 * kMiB - 512);
  Block* b = f.memory.allocate(1);
  expect_in("10.0 MiB limit of live bytes",
            error_of(ErrorKind::memory, [&] { f.memory.allocate(1); }));
  f.memory.deallocate(b);
  f.memory.deallocate(a);
  f.memory.deallocate(f.memory.allocate(10 * kMiB));
  f.memory.set_live_limit(0);
  f.memory.deallocate(f.memory.allocate(11 * kMiB));
}

// As long as the live bytes fit, nothing is refused, and what is held stays near the limit: each
// live block may keep the parts of 64 KiB that its edges lie in.
TEST(LiveLimit, NeverRefusesWhatFitsHoweverTheCacheIsCut) {
  constexpr std::size_t kLimit = 24 * kMiB;
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    Fixture f;
    f.memory.set_live_limit(kLimit);
    std::mt19937 random(seed);
    std::vector<Block*> live;
    std::size_t refused = 0, most_live = 0;
    for (int i = 0; i < 20'000; ++i) {
      const std::size_t largest = random() % 8 == 0 ? 6 * kMiB : 300 * kKiB;
      const std::size_t bytes = (random() % largest / 512 + 1) * 512;
      const bool fits = f.memory.stats().allocated + bytes <= kLimit;
      if (random() % 2 == 0 || live.empty()) {
        try {
          live.push_back(f.memory.allocate(bytes));
          ASSERT_TRUE(fits);
        } catch (const Error&) {
          ASSERT_FALSE(fits);
          ++refused;
        }
      } else {
        std::swap(live[random() % live.size()], live.back());
        f.memory.deallocate(live.back());
        live.pop_back();
      }
      most_live = std::max(most_live, live.size());
      ASSERT_LE(f.memory.stats().reserved, kLimit + (2 * most_live + 1) * kPart);
      ASSERT_EQ(f.memory.stats().reserved, f.source.held_bytes());
    }
    EXPECT_GT(refused, 10U);
    for (Block* b : live) f.memory.deallocate(b);
  }
}

TEST(LiveLimit, GivesCachesBackWhenItIsSet) {
  Fixture f;
  f.memory.deallocate(f.memory.allocate(64 * kMiB));
  EXPECT_EQ(f.memory.stats().reserved, 64 * kMiB);
  f.memory.set_live_limit(16 * kMiB);
  EXPECT_LE(f.memory.stats().reserved, 16 * kMiB);
}

TEST(LiveLimit, RoomIsTheTightestBound) {
  Fixture f;
  EXPECT_EQ(f.memory.room(), 0U);  // nothing bounds it
  f.memory.set_live_limit(16 * kMiB);
  EXPECT_EQ(f.memory.room(), 16 * kMiB);
  f.memory.set_limit(8 * kMiB);
  EXPECT_EQ(f.memory.room(), 8 * kMiB);
  EXPECT_GT(memory_room(kCpu), 0U);  // the machine does
  set_live_limit(kCpu, 5 * kMiB);
  EXPECT_EQ(memory_room(kCpu), 5 * kMiB);
  set_live_limit(kCpu, 0);
}

}  // namespace
}  // namespace duet::test
