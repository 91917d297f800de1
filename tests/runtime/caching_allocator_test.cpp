// The memory policy: reuse, merging, limits, failures, owners, and a soak against a naive model.
#include "runtime/caching_allocator.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "runtime/cpu/host_source.h"
#include "runtime/memory_advice.h"
#include "runtime/meta_source.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/fake_source.h"
#include "tests/runtime/fake_training.h"
#include "tests/runtime/sanitizer.h"

namespace duet::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kPart = std::size_t{64} << 10;
constexpr int kForever = std::numeric_limits<int>::max() / 2;

// An allocator over a FakeSource that the test can still reach.
struct Fixture {
  explicit Fixture(std::size_t part_bytes = 0)
      : Fixture(std::make_unique<FakeSource>(part_bytes)) {}
  explicit Fixture(std::unique_ptr<FakeSource> s) : source(*s), memory(std::move(s), "fake") {}
  FakeSource& source;
  CachingAllocator memory;
};

TEST(CachingAllocator, ReusesSplitsAndMerges) {
  Fixture f;
  Block* a = f.memory.allocate(3 * kMiB);
  f.memory.deallocate(a);
  Block* b = f.memory.allocate(kMiB);
  Block* c = f.memory.allocate(kMiB);
  Block* d = f.memory.allocate(2 * kMiB);
  EXPECT_EQ(f.source.calls, 1);  // all three fit the first segment of 4 MiB
  EXPECT_EQ(f.memory.stats().largest_free, 0U);
  f.memory.deallocate(c);
  f.memory.deallocate(d);
  EXPECT_EQ(f.memory.stats().largest_free, 3 * kMiB);
  f.memory.deallocate(b);
  EXPECT_EQ(f.memory.stats().largest_free, 4 * kMiB);
  EXPECT_EQ(f.memory.stats().reserved, 4 * kMiB);
  f.memory.empty_cache();
  EXPECT_EQ(f.memory.stats().reserved, 0U);
  EXPECT_EQ(f.memory.stats().peak_reserved, 4 * kMiB);
  EXPECT_EQ(f.memory.stats().peak_allocated, 4 * kMiB);
  EXPECT_EQ(f.memory.stats().allocations, 4U);
  EXPECT_EQ(f.memory.stats().raw_allocations, 1U);
}

TEST(CachingAllocator, TakesTheSmallestBlockThatFits) {
  Fixture f;
  std::vector<Block*> blocks, walls;
  for (const std::size_t mib : {6U, 4U, 5U}) {
    blocks.push_back(f.memory.allocate(mib * kMiB));
    walls.push_back(f.memory.allocate(mib * kMiB));
  }
  const void* four = f.memory.data(blocks[1]);
  for (Block* b : blocks) f.memory.deallocate(b);
  Block* fit = f.memory.allocate(4 * kMiB - 100);
  EXPECT_EQ(f.memory.data(fit), four);
  f.memory.deallocate(fit);
  for (Block* b : walls) f.memory.deallocate(b);
}

TEST(CachingAllocator, ZeroBytesAndHugeRequests) {
  Fixture f;
  Block* a = f.memory.allocate(0);
  Block* b = f.memory.allocate(0);
  EXPECT_NE(f.memory.data(a), nullptr);
  EXPECT_NE(f.memory.data(a), f.memory.data(b));
  f.memory.deallocate(a);
  f.memory.deallocate(b);
  EXPECT_EQ(f.memory.stats().allocated, 0U);
  for (const std::size_t bytes : {~std::size_t{0}, ~std::size_t{0} - 600, std::size_t{1} << 63}) {
    error_of(ErrorKind::memory, [&] { f.memory.allocate(bytes); });
  }
  EXPECT_EQ(f.memory.stats().allocated, 0U);
}

// C10: a cached block of 100 is split 50 + 50; 60 more must fit a pool capped at 120.
TEST(CachingAllocator, GivesBackTheRestOfASplitBlock) {
  Fixture f(kPart);
  f.memory.set_limit(120 * kMiB);
  f.memory.deallocate(f.memory.allocate(100 * kMiB));
  Block* a = f.memory.allocate(50 * kMiB);
  Block* b = f.memory.allocate(60 * kMiB);
  EXPECT_LE(f.memory.stats().reserved, 120 * kMiB);
  EXPECT_EQ(f.source.held_bytes(), f.memory.stats().reserved);
  f.memory.deallocate(a);
  f.memory.deallocate(b);

  Fixture whole;  // a source that takes only whole segments: merging must do
  whole.memory.set_limit(120 * kMiB);
  whole.memory.deallocate(whole.memory.allocate(100 * kMiB));
  Block* c = whole.memory.allocate(50 * kMiB);
  expect_in("50.0 MiB live, 50.0 MiB cached in pieces of at most 50.0 MiB",
            error_of(ErrorKind::memory, [&] { whole.memory.allocate(60 * kMiB); }));
  whole.memory.deallocate(c);
  whole.memory.deallocate(whole.memory.allocate(60 * kMiB));
  whole.memory.deallocate(whole.memory.allocate(120 * kMiB));
}

// C35: a big block comes back in pieces that live on; the big request succeeds while bytes suffice.
TEST(CachingAllocator, BigBlockReturnsAfterSmallOnesFilledIt) {
  Fixture f(kPart);
  f.memory.set_limit(160 * kMiB);
  f.memory.deallocate(f.memory.allocate(110 * kMiB));
  std::vector<Block*> crumbs, gaps;
  for (int i = 0; i < 100; ++i) {
    crumbs.push_back(f.memory.allocate(400 << 10));
    gaps.push_back(f.memory.allocate(700 << 10));
  }
  for (Block* b : gaps) f.memory.deallocate(b);
  Block* big = f.memory.allocate(110 * kMiB);  // 39 MiB live between gaps of 684 KiB
  EXPECT_LE(f.source.held_bytes(), 160 * kMiB);
  expect_in("out of memory: asked for 20.0 MiB",
            error_of(ErrorKind::memory, [&] { f.memory.allocate(20 * kMiB); }));
  f.memory.deallocate(big);
  for (Block* b : crumbs) f.memory.deallocate(b);
}

// C11, C37: the error names what a user needs.
TEST(CachingAllocator, OutOfMemoryNamesEverything) {
  Fixture f;
  f.memory.set_limit(64 * kMiB);
  std::vector<Block*> blocks;
  for (const char* layer : {"0", "1"}) {
    const MemoryScope outer("blocks"), inner(layer), attn("attn");
    blocks.push_back(f.memory.allocate(12 * kMiB));
    f.memory.mark(blocks.back(), MemoryKind::saved, f.memory.owner(blocks.back()));
  }
  {
    const MemoryScope outer("head");
    blocks.push_back(f.memory.allocate(6 * kMiB));
    f.memory.deallocate(f.memory.allocate(8 * kMiB));
  }
  const MemoryScope scope("mlp");
  EXPECT_EQ(error_of(ErrorKind::memory, [&] { f.memory.allocate(100 * kMiB); }),
            "fake out of memory: asked for 100 MiB in mlp; 64.0 MiB limit, 30.0 MiB live, 0 B "
            "cached in pieces of at most 0 B;\n"
            "  saved for backward 24.0 MiB: blocks.*.attn 24.0 MiB;\n"
            "  temporary 6.00 MiB: head 6.00 MiB;\n"
            "  try a smaller batch_size (gradient_accumulation_steps keeps the tokens per step), "
            "a smaller block_size, or --recompute attn");
  const auto owners = f.memory.largest_owners(2);
  ASSERT_EQ(owners.size(), 2U);
  EXPECT_EQ(owners[0].path, "blocks.0.attn");
  EXPECT_EQ(owners[1].bytes, 12 * kMiB);
  for (Block* b : blocks) f.memory.deallocate(b);
  EXPECT_TRUE(f.memory.largest_owners(9).empty());
  EXPECT_EQ(f.memory.peak_owners(9).size(), 3U);
}

// Where no graph is kept, nobody is told of backward, gradients or the keys of training.
TEST(CachingAllocator, OutOfMemoryAdvisesWhatTheCommandCanChange) {
  Fixture f;
  f.memory.set_limit(64 * kMiB);
  Block* weight = nullptr;
  {
    const MemoryKindScope of_kind(MemoryKind::parameters);
    weight = f.memory.allocate(20 * kMiB);
  }
  Block* input = f.memory.allocate(10 * kMiB);
  f.memory.mark(input, MemoryKind::saved, f.memory.owner(input));
  set_memory_advice("try a smaller --batch_size (it is 12)");
  const std::string text = error_of(ErrorKind::memory, [&] { f.memory.allocate(100 * kMiB); });
  set_memory_advice("");
  expect_in(";\n  temporary 10.0 MiB: ", text);
  expect_in(";\n  try a smaller --batch_size (it is 12)", text);
  for (const char* word : {"backward", "gradient", "n_layer"}) {
    EXPECT_EQ(text.find(word), std::string::npos) << word << " in: " << text;
  }
  f.memory.deallocate(weight);
  f.memory.deallocate(input);
}

// C37: ten owners, under the kind of memory that they are.
TEST(CachingAllocator, OutOfMemoryGroupsTheTenLargestOwnersByKind) {
  Fixture f;
  f.memory.set_limit(100 * kMiB);
  std::vector<Block*> blocks;
  const auto hold = [&](MemoryKind kind, const char* name, std::size_t mib) {
    const MemoryKindScope of_kind(kind);
    const MemoryScope scope(name);
    blocks.push_back(f.memory.allocate(mib * kMiB));
  };
  hold(MemoryKind::parameters, "embedding", 20);
  hold(MemoryKind::parameters, "head", 3);
  hold(MemoryKind::gradients, "embedding", 19);
  hold(MemoryKind::optimizer, "optimizer", 40);
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"}) hold(MemoryKind::saved, name, 2);
  f.memory.mark(blocks.front(), MemoryKind::saved, 0);  // a weight that an op saves stays a weight
  const std::string text = error_of(ErrorKind::memory, [&] { f.memory.allocate(90 * kMiB); });
  expect_in(
      ";\n  optimizer 40.0 MiB: optimizer 40.0 MiB"
      ";\n  parameters 23.0 MiB: embedding 20.0 MiB, head 3.00 MiB"
      ";\n  gradients 19.0 MiB: embedding 19.0 MiB"
      ";\n  saved for backward 14.0 MiB: a 2.00 MiB, b 2.00 MiB, c 2.00 MiB, d 2.00 MiB, "
      "e 2.00 MiB, f 2.00 MiB and 1 more;\n  try a smaller model (n_layer, n_embd): ",
      text);
  for (Block* b : blocks) f.memory.deallocate(b);
}

TEST(CachingAllocator, PeakRemembersItsOwners) {
  Fixture f;
  const auto hold = [&](const char* name, std::size_t mib) {
    const MemoryScope scope(name);
    return f.memory.allocate(mib * kMiB);
  };
  Block* a = hold("first", 3);
  Block* b = hold("second", 5);
  f.memory.deallocate(a);
  Block* c = hold("third", 1);
  const auto owners = f.memory.peak_owners(9);
  ASSERT_EQ(owners.size(), 2U);
  EXPECT_EQ(owners[0].path, "second");
  EXPECT_EQ(owners[1].path, "first");
  f.memory.reset_peak();
  EXPECT_EQ(f.memory.stats().peak_allocated, 6 * kMiB);
  EXPECT_EQ(f.memory.peak_owners(9)[1].path, "third");
  f.memory.deallocate(b);
  f.memory.deallocate(c);
}

// Whatever call to the source fails, once or from then on: no crash, no leak, live blocks stand.
TEST(CachingAllocator, SurvivesEveryFailingCall) {
  const std::size_t sizes[] = {100, 3 * kMiB, 700 << 10, 5 * kMiB, 0, 200 << 10, 2 * kMiB};
  for (const int count : {1, 2, kForever}) {
    for (int n = 1; n <= 12; ++n) {
      Fixture f(n % 2 == 0 ? kPart : 0);
      f.source.fail_from = n;
      f.source.fail_count = count;
      std::vector<Block*> live;
      int refused = 0;
      for (int round = 0; round < 3; ++round) {
        for (const std::size_t bytes : sizes) {
          const MemoryStats before = f.memory.stats();
          try {
            live.push_back(f.memory.allocate(bytes));
          } catch (const Error& e) {
            EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(ErrorKind::memory));
            EXPECT_EQ(f.memory.stats().allocated, before.allocated);
            ++refused;
          }
          EXPECT_EQ(f.source.held_bytes(), f.memory.stats().reserved);
        }
        if (live.empty()) continue;
        f.memory.deallocate(live.front());
        live.erase(live.begin());
      }
      EXPECT_TRUE(refused == 0 || count == kForever);  // asked again after giving back
      for (Block* b : live) {
        EXPECT_TRUE(f.source.holds(f.memory.data(b), 1));
        f.memory.deallocate(b);
      }
      EXPECT_EQ(f.memory.stats().allocated, 0U);
    }
  }
}

// Random calls; a naive model knows every live range. Ranges never overlap, lie in memory that the
// source gave, are aligned; counters agree with the model.
void soak(std::uint32_t seed, std::size_t part_bytes) {
  Fixture f(part_bytes);
  f.source.capacity = 40 * kMiB;
  std::mt19937 random(seed);
  struct Live {
    Block* block;
    std::size_t bytes;
  };
  std::map<std::uintptr_t, Live> live;  // by address
  std::size_t asked = 0;
  const auto drop = [&](std::map<std::uintptr_t, Live>::iterator it) {
    asked -= it->second.bytes;
    f.memory.deallocate(it->second.block);
    live.erase(it);
  };
  for (int step = 0; step < 4000; ++step) {
    const auto action = random() % 100;
    if (action < 55) {
      const std::size_t bytes = random() % (std::size_t{1} << (4 + random() % 20));
      try {
        Block* block = f.memory.allocate(bytes);
        const auto begin = reinterpret_cast<std::uintptr_t>(f.memory.data(block));
        ASSERT_EQ(begin % 64, 0U);
        ASSERT_TRUE(f.source.holds(f.memory.data(block), bytes));
        const auto after = live.lower_bound(begin);
        const std::uintptr_t end = begin + std::max<std::size_t>(bytes, 1);
        ASSERT_TRUE(after == live.end() || end <= after->first);
        if (after != live.begin()) {
          const auto before = std::prev(after);
          ASSERT_LE(before->first + std::max<std::size_t>(before->second.bytes, 1), begin);
        }
        live[begin] = {block, bytes};
        asked += bytes;
      } catch (const Error& e) {
        ASSERT_EQ(static_cast<int>(e.kind()), static_cast<int>(ErrorKind::memory));
      }
    } else if (action < 98 && !live.empty()) {
      drop(std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size())));
    } else if (action == 98) {
      f.memory.empty_cache();
    } else {
      f.memory.set_limit(random() % 2 == 0 ? 0 : 30 * kMiB);
    }
    const MemoryStats stats = f.memory.stats();
    ASSERT_EQ(stats.reserved, f.source.held_bytes());
    ASSERT_LE(asked, stats.allocated);
    ASSERT_LE(stats.allocated, asked + 512 * live.size());
    ASSERT_LE(stats.allocated + stats.largest_free, stats.reserved);
  }
  while (!live.empty()) drop(live.begin());
  EXPECT_EQ(f.memory.stats().allocated, 0U);
}

TEST(CachingAllocator, RandomSoakAgainstANaiveModel) {
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    soak(seed, seed % 2 == 0 ? kPart : 0);
    if (HasFatalFailure()) return;
  }
}

double reserved_ratio(const Fixture& f) {
  const MemoryStats stats = f.memory.stats();
  return static_cast<double>(stats.peak_reserved) / static_cast<double>(stats.peak_allocated);
}

TEST(CachingAllocator, AlternatingShapesDoNotPileUp) {
  for (const std::size_t part_bytes : {std::size_t{0}, kPart}) {
    Fixture f(part_bytes);
    FakeTraining training(f.memory);
    std::mt19937 random(7);
    std::uint64_t warm = 0;
    for (int round = 0; round < 500; ++round) {
      training.step(1024);
      training.step(137 + random() % 864);
      if (round == 9) warm = f.memory.stats().raw_allocations;
    }
    EXPECT_LE(reserved_ratio(f), 1.2);
    EXPECT_EQ(f.memory.stats().raw_allocations, warm);  // nothing was asked after the start
  }
}

// The hardest order: every step is longer than all before, so no cached block is large enough.
// Keeping every segment would reserve eight times the live peak.
TEST(CachingAllocator, GrowingShapesDoNotPileUp) {
  for (const std::size_t part_bytes : {std::size_t{0}, kPart}) {
    Fixture f(part_bytes);
    FakeTraining training(f.memory);
    for (std::size_t t = 137; t <= 1024; t += 7) training.step(t);
    EXPECT_LE(reserved_ratio(f), 1.2);
  }
}

// Segments in order of their making, blocks in order of address; a segment cut in two stays in its
// place.
TEST(CachingAllocator, MapShowsEveryByte) {
  Fixture f(kPart);
  EXPECT_TRUE(f.memory.map().empty());
  std::vector<Block*> blocks;
  for (const std::size_t bytes : {3 * kMiB, kMiB / 4, 2 * kMiB, kMiB}) {
    blocks.push_back(f.memory.allocate(bytes));
  }
  f.memory.deallocate(blocks[2]);
  const auto shown = [&] {
    std::string text;
    for (const MemoryMapSegment& segment : f.memory.map()) {
      std::size_t bytes = 0;
      text += concat(text.empty() ? "" : " | ", segment.bytes / kPart, ':');
      for (const MemoryMapBlock& b : segment.blocks) {
        bytes += b.bytes;
        text += concat(' ', b.bytes / kPart);
        text += b.free ? "free" : concat('#', b.number);
      }
      EXPECT_EQ(bytes, segment.bytes);
    }
    return text;
  };
  EXPECT_EQ(shown(), "64: 48#1 16#4 | 32: 4#2 28free | 32: 32free");
  f.memory.set_limit(f.memory.stats().reserved);
  f.memory.deallocate(blocks[0]);
  Block* big = f.memory.allocate(4 * kMiB);  // parts go back for it
  EXPECT_EQ(shown(), "16: 16#4 | 4: 4#2 | 64: 64#5");
  Block* half = f.memory.allocate(kPart / 2);
  f.memory.deallocate(big);
  f.memory.deallocate(half);
  f.memory.deallocate(blocks[1]);
  f.memory.deallocate(blocks[3]);
  f.memory.empty_cache();
  EXPECT_EQ(shown(), "");
}

// Who reads memory before writing it, or after giving it back, gets NaN.
TEST(CachingAllocator, PoisonIsNaN) {
  CachingAllocator memory(std::make_unique<HostSource>(), "cpu");
  const std::size_t bytes = 3 * kMiB + 20;
  const auto all_ones = [&](const void* data) {
    const auto* byte = static_cast<const unsigned char*>(data);
    return std::all_of(byte, byte + bytes, [](unsigned char b) { return b == 0xFF; });
  };
  Block* before = memory.allocate(bytes);
  std::memset(memory.data(before), 1, bytes);
  memory.deallocate(before);
  memory.set_poison(true);
  Block* block = memory.allocate(bytes);
  float f = 0;
  double d = 0;
  std::memcpy(&f, memory.data(block), sizeof f);
  std::memcpy(&d, memory.data(block), sizeof d);
  EXPECT_TRUE(std::isnan(f) && std::isnan(d));
  EXPECT_TRUE(all_ones(memory.data(block)));
  const void* data = memory.data(block);
  std::memset(memory.data(block), 1, bytes);
  memory.deallocate(block);
  EXPECT_TRUE(all_ones(data));  // cached, so still ours to look at
  EXPECT_GT(memory.stats().poison_seconds, 0);
  memory.set_poison(false);
  block = memory.allocate(bytes);
  std::memset(memory.data(block), 1, bytes);
  memory.deallocate(block);
  EXPECT_FALSE(all_ones(data));

  CachingAllocator meta(std::make_unique<MetaSource>(), "meta");
  meta.set_poison(true);  // has no bytes
  meta.deallocate(meta.allocate(bytes));
  EXPECT_EQ(meta.stats().poison_seconds, 0);
}

// A step on `meta` makes the decisions of a step on the host.
TEST(CachingAllocator, MetaPlansWhatTheHostDoes) {
  CachingAllocator host(std::make_unique<HostSource>(), "cpu");
  CachingAllocator meta(std::make_unique<MetaSource>(), "meta");
  for (CachingAllocator* memory : {&host, &meta}) {
    FakeTraining training(*memory);
    for (const std::size_t t : {64U, 200U, 64U, 33U}) training.step(t);
  }
  EXPECT_EQ(host.stats().peak_allocated, meta.stats().peak_allocated);
  EXPECT_EQ(host.stats().peak_reserved, meta.stats().peak_reserved);
  EXPECT_EQ(host.stats().raw_allocations, meta.stats().raw_allocations);
}

// After the first step the host's pages stay: writing every block again faults in nothing new.
TEST(CachingAllocator, SteadyStepsTakeNoPageFaults) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's own faults would count";
  CachingAllocator memory(std::make_unique<HostSource>(), "cpu");
  const auto step = [&] {
    std::vector<Block*> blocks;
    for (int i = 0; i < 20; ++i) {
      const std::size_t bytes = kMiB / 2 + static_cast<std::size_t>(i) * 100'000;
      blocks.push_back(memory.allocate(bytes));
      std::memset(memory.data(blocks.back()), i, bytes);
    }
    for (Block* b : blocks) memory.deallocate(b);
  };
  step();
  step();
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  for (int i = 0; i < 10; ++i) step();
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_minflt - before.ru_minflt, 50);  // 10 steps write 7,000 pages each
}

TEST(HostSource, KnowsTheMachineAndGivesPartsBack) {
  HostSource source;
  EXPECT_GT(source.limit().total, 0U);
  EXPECT_GT(source.limit().free, 0U);
  EXPECT_LE(source.limit().free, source.limit().total);
  EXPECT_EQ(source.allocate(std::size_t{1} << 60), nullptr);
  // Never written, so the machine still calls it free; given all the same.
  std::vector<void*> given;
  const std::size_t half = source.limit().free / 2 / (2 * kMiB) * (2 * kMiB);
  for (void* p = source.allocate(half); p != nullptr; p = source.allocate(half)) {
    given.push_back(p);
    ASSERT_LE(given.size() * half, source.limit().total);
  }
  EXPECT_GE(given.size(), 1U);
  for (void* p : given) source.deallocate(p, half);
  auto* data = static_cast<char*>(source.allocate(3 * kMiB));
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % (2 * kMiB), 0U);
  std::memset(data, 1, 3 * kMiB);
  source.deallocate(data + kMiB, kPart);
  data[0] = data[3 * kMiB - 1] = 2;
  source.deallocate(data, kMiB);
  source.deallocate(data + kMiB + kPart, 2 * kMiB - kPart);
}

}  // namespace
}  // namespace duet::test
