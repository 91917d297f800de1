// Memory traces: what is written reads back and replays to the byte; full disks and malformed files
// are errors that say where.
#include "runtime/memory_trace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <random>

#include "runtime/cpu/host_source.h"
#include "runtime/meta_source.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/fake_training.h"
#include "tests/runtime/faulty_disk.h"
#include "tests/runtime/memory_recorder.h"
#include "tests/runtime/temp_directory.h"

namespace duet::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::unique_ptr<RawSource> source_of(bool host) {
  if (host) return std::make_unique<HostSource>();
  return std::make_unique<MetaSource>();
}

// A few events of every kind.
void record_a_little(CachingAllocator& memory) {
  const MemoryScope blocks("blocks"), layer("0");
  Block* weight = nullptr;
  {
    const MemoryKindScope kind(MemoryKind::parameters);
    weight = memory.allocate(1000);
  }
  const MemoryScope attn("attn");
  const OpScope op("matmul");
  Block* saved = memory.allocate(3 * kMiB);
  memory.mark(saved, MemoryKind::saved, memory.owner(weight));
  memory.deallocate(weight);
  memory.deallocate(saved);
}

constexpr const char* kLittle =
    "duet memory trace, version 1, bytes\n"
    "scope 1 blocks.0\n"
    "alloc 1 1000 1 parameters\n"
    "scope 2 blocks.0.attn\n"
    "alloc 2 3145728 2 temporary matmul\n"
    "mark 2 1 saved matmul\n"
    "free 1 matmul\n"
    "free 2 matmul\n"
    "end 5 3146752 6291456\n";

TEST(MemoryTrace, HoldsEveryEventInOneLine) {
  const TempDirectory dir;
  for (int round = 0; round < 2; ++round) {  // an old trace is replaced
    CachingAllocator memory(source_of(false), "meta");
    AllocatorTrace trace(dir.file("t"), memory);
    record_a_little(memory);
    trace.finish();
    memory.deallocate(memory.allocate(1));  // after it
    trace.finish();
    EXPECT_EQ(read_bytes(dir.file("t")), kLittle);
  }
}

TEST(MemoryTrace, LeavesOutOlderBlocks) {
  const TempDirectory dir;
  CachingAllocator memory(source_of(false), "meta");
  Block* const a = memory.allocate(1);
  Block* const b = memory.allocate(2);
  AllocatorTrace trace(dir.file("t"), memory);
  memory.deallocate(a);
  memory.mark(b, MemoryKind::saved, 0);
  Block* const c = memory.allocate(3);
  memory.deallocate(b);
  memory.deallocate(c);
  trace.finish();
  EXPECT_EQ(read_bytes(dir.file("t")),
            concat(kTraceHeader, "\nalloc 1 3 0 temporary\nfree 1\n", "end 2 512 2097152\n"));
}

TEST(MemoryTrace, ReadsBackWhatWasRecorded) {
  const TempDirectory dir;
  write_bytes(dir.file("t"), kLittle);
  CachingAllocator memory(source_of(true), "cpu");
  const MemoryRecorder recorder(memory);
  record_a_little(memory);
  MemoryTraceReader trace(dir.file("t"));
  for (const MemoryEvent& expected : recorder.events) {
    const auto event = trace.next();
    ASSERT_TRUE(event);
    EXPECT_EQ(static_cast<int>(event->type), static_cast<int>(expected.type));
    EXPECT_EQ(static_cast<int>(event->kind), static_cast<int>(expected.kind));
    EXPECT_EQ(trace.scopes()[event->scope], scope_path(expected.scope));
    EXPECT_EQ(event->block, expected.block);
    EXPECT_EQ(event->asked, expected.asked);
    EXPECT_EQ(std::string(event->op == nullptr ? "" : event->op),
              std::string(expected.op == nullptr ? "" : expected.op));
  }
  EXPECT_FALSE(trace.next());
  EXPECT_FALSE(trace.next());
  ASSERT_TRUE(trace.recorded());
  EXPECT_EQ(trace.recorded()->peak_reserved, memory.stats().peak_reserved);
}

// The figures of a recorded trace are those of the recorded allocator, with and without a limit.
TEST(MemoryTrace, ReplaysToTheByte) {
  const TempDirectory dir;
  for (const bool host : {true, false}) {
    std::size_t limit = 0;
    for (int round = 0; round < 2; ++round) {
      SCOPED_TRACE(concat(host ? "host" : "meta", ", limit ", limit));
      CachingAllocator memory(source_of(host), "recorded");
      memory.set_limit(limit);
      AllocatorTrace trace(dir.file("t"), memory);
      std::mt19937 random(11);
      std::vector<MemoryOwner> owners;
      {
        const MemoryScope scope("model");
        FakeTraining training(memory);
        for (int i = 0; i < 6; ++i) training.step(100 + random() % 200);
        owners = memory.peak_owners(100);
      }
      trace.finish();
      const TraceReplay r = replay_trace(dir.file("t"));
      const MemoryStats stats = memory.stats();
      EXPECT_EQ(r.limit, limit);
      EXPECT_EQ(r.figures.peak_allocated, stats.peak_allocated);
      EXPECT_EQ(r.figures.peak_reserved, stats.peak_reserved);
      EXPECT_EQ(r.figures.allocations, stats.allocations);
      EXPECT_EQ(r.figures.raw_allocations, stats.raw_allocations);
      ASSERT_TRUE(r.recorded);
      EXPECT_EQ(r.recorded->peak_allocated, stats.peak_allocated);
      EXPECT_EQ(r.recorded->peak_reserved, stats.peak_reserved);
      std::size_t held = 0;
      for (const MemoryMapSegment& segment : r.figures.map) held += segment.bytes;
      EXPECT_EQ(held, r.figures.reserved_at_peak);
      ASSERT_EQ(r.owners.size(), 1U);
      EXPECT_EQ(r.owners[0].path, owners[0].path);
      EXPECT_EQ(r.owners[0].bytes, stats.peak_allocated);
      EXPECT_TRUE(limit == 0 || stats.peak_reserved <= limit);
      limit = stats.peak_reserved - kMiB;  // it bites in the next round
    }
  }
}

// What a trace whose writer was killed still tells.
TEST(MemoryTrace, ReadsATraceThatWasCutOff) {
  const TempDirectory dir;
  const std::string whole = kLittle;
  for (std::size_t size = 36; size < whole.size(); ++size) {
    write_bytes(dir.file("t"), whole.substr(0, size));
    const TraceReplay r = replay_trace(dir.file("t"));
    EXPECT_FALSE(r.recorded) << size;
    EXPECT_LE(r.figures.events, 5U);
  }
  write_bytes(dir.file("t"), whole.substr(0, whole.find("mark")));
  EXPECT_EQ(replay_trace(dir.file("t")).figures.peak_allocated, 3146752U);
  std::string windows;
  for (const char c : whole) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  write_bytes(dir.file("t"), windows);
  EXPECT_TRUE(replay_trace(dir.file("t")).recorded);
}

TEST(MemoryTrace, RefusesMalformedLines) {
  const TempDirectory dir;
  struct Row {
    const char* lines;
    const char* expected;
  };
  const Row rows[] = {
      {"free 1\n", ":2: free: got block 1, expected the number of a live block; record"},
      {"alloc 1 5 0 temporary\nfree 1\nfree 1\n", ":4: free: got block 1, expected"},
      {"alloc 1 5 0 temporary\nalloc 1 5 0 temporary\n",
       ":3: alloc: got block 1, expected a number above 1"},
      {"alloc 0 5 0 temporary\n", ":2: alloc: got block 0, expected a number above 0"},
      {"alloc 1 -5 0 temporary\n", ":2: bytes asked for: got \"-5\", expected a number from 0 to"},
      {"alloc 1 99999999999999999999999 0 temporary\n", ":2: bytes asked for: got \"9999"},
      {"alloc 1 9223372036854775808 0 temporary\n", ":2: bytes asked for: got \"9223372036"},
      {"alloc 18446744073709551615 1 0 temporary\n", ":2: block: got \"18446744073709551615\""},
      {"alloc 1 5 1 temporary\n",
       ":2: scope: got 1, expected the number of a scope line above, at most 0"},
      {"alloc 1 5 0 weights\n", ":2: kind: got \"weights\", expected temporary, parameters,"},
      {"alloc 1 5 0\n", ":2: kind: got the end of the line, expected temporary"},
      {"alloc\n", ":2: block: got the end of the line, expected a number"},
      {"alloc  1 5 0 temporary\n", ":2: block: got the end of the line"},
      {"alloc 0x1 5 0 temporary\n", ":2: block: got \"0x1\""},
      {"mark 3 0 saved\n", ":2: mark: got block 3, expected the number of a live block"},
      {"scope 2 a\n", ":2: scope: got 2, expected the next number, 1"},
      {"scope 1\n", ":2: scope: got no path"},
      {"scope 1 \n", ":2: scope: got no path"},
      {"realloc 1 5\n", ":2: the line is none of a memory trace: got \"realloc 1 5\", expected"},
      {"\n", ":2: the line is none of a memory trace: got the end of the line"},
      {"\x01\xff\n", ":2: the line is none of a memory trace: got \"\\x01\\xff\""},
      {"end 1 0 0\n", ":2: end: events: got 1, expected the 0 that the file holds"},
      {"end 0 0 0\nfree 1\n", ":3: a line after the end: got \"free 1\""},
      {"end 0 0 0 0\n", ":2: the line goes on: got \"0\", expected its end"},
      {"end 0 -1 0\n", ":2: end: peak of live bytes: got \"-1\""},
  };
  for (const Row& row : rows) {
    write_bytes(dir.file("t"), concat(kTraceHeader, '\n', row.lines));
    expect_in(concat(dir.file("t"), row.expected),
              error_of(ErrorKind::file, [&] { replay_trace(dir.file("t")); }));
  }
}

TEST(MemoryTrace, RefusesOtherFiles) {
  const TempDirectory dir;
  const std::pair<std::string, const char*> contents[] = {
      {"", ":1: this is no memory trace: got an empty file, expected a file that begins with "},
      {"x", ":1: this is no memory trace: got \"x\""},
      {std::string(5000, '\0'), ":1: this is no memory trace: got \"\\x00"},
      {std::string("\x1f\x8b\x08", 3) + std::string(100, 'x'), "got a gzip file, expected"},
      {"duet memory trace, version 2, bytes\n",
       ":1: the trace has another version or unit: got \"duet memory trace, version 2, bytes\""},
      {"duet memory trace, version 1, pages\n", ":1: the trace has another version or unit"},
      {"duet memory trace, version 1", ":1: the trace has another version or unit"},
      {"duet memory trace, version 1, bytes, limit -5\n", ":1: limit: got \"-5\""},
      {"duet memory trace, version 1, bytes and more\n", ":1: the header goes on"},
      {concat(kTraceHeader, '\n', std::string(100'000, 'a')), ":2: the line is too long"},
      {concat(kTraceHeader, '\n', std::string(100'000, 'a'), '\n'), ":2: the line is too long"},
  };
  for (const auto& [bytes, expected] : contents) {
    write_bytes(dir.file("t"), bytes);
    expect_in(expected, error_of(ErrorKind::file, [&] { replay_trace(dir.file("t")); }));
  }
  expect_in("a directory", error_of(ErrorKind::file, [&] { replay_trace(dir.path()); }));
  expect_in("a device", error_of(ErrorKind::file, [&] { replay_trace("/dev/zero"); }));
  expect_in("cannot open", error_of(ErrorKind::file, [&] { replay_trace(dir.file("none")); }));
}

// More than an address space, more than the limit: the file is at fault, not the memory.
TEST(MemoryTrace, RefusesRequestsThatFitNowhere) {
  const TempDirectory dir;
  std::string text = concat(kTraceHeader, '\n');
  for (int i = 1; i <= 5000; ++i) text += concat("alloc ", i, " 1125899906842624 0 temporary\n");
  write_bytes(dir.file("t"), text);
  expect_in("expected what fits into an address space",
            error_of(ErrorKind::file, [&] { replay_trace(dir.file("t")); }));
  write_bytes(dir.file("t"), concat(kTraceHeader, kTraceLimit, 1000, "\nalloc 1 5 0 temporary\n"));
  expect_in(
      ":2: alloc: got a request of 5 bytes on top of the live ones, expected what fits the "
      "limit of 1000; record",
      error_of(ErrorKind::file, [&] { replay_trace(dir.file("t")); }));
}

TEST(MemoryTrace, ReadsMillionsOfLines) {
  const TempDirectory dir;
  std::string text = concat(kTraceHeader, '\n');
  constexpr int kPairs = 1'000'000;
  text.reserve(std::size_t{48} * kPairs);
  for (int i = 1; i <= kPairs; ++i) {
    const std::string block = std::to_string(i);
    text += "alloc ";
    text += block;
    text += " 700 0 temporary\nfree ";
    text += block;
    text += '\n';
  }
  write_bytes(dir.file("t"), text);
  const TraceReplay r = replay_trace(dir.file("t"));
  EXPECT_EQ(r.figures.events, 2U * kPairs);
  EXPECT_EQ(r.figures.peak_allocated, 1024U);
  EXPECT_EQ(r.figures.raw_allocations, 1U);
}

TEST(MemoryTrace, RefusesAPathThatCannotBeWritten) {
  const TempDirectory dir;
  error_of(ErrorKind::io, [&] { MemoryTraceWriter w(dir.path()); });
  error_of(ErrorKind::io, [&] { MemoryTraceWriter w(dir.file("none/t")); });
  write_bytes(dir.file("corpus"), "It was the best of times");
  expect_in(
      "corpus: the file holds something else: got \"It was the best of times\", expected no file, "
      "or an older one of the same kind to replace; choose another path",
      error_of(ErrorKind::usage, [&] { MemoryTraceWriter w(dir.file("corpus")); }));
  EXPECT_EQ(read_bytes(dir.file("corpus")), "It was the best of times");
  write_bytes(dir.file("empty"), "");
  MemoryTraceWriter(dir.file("empty")).finish();
  EXPECT_EQ(replay_trace(dir.file("empty")).figures.events, 0U);
}

// A full disk is told at the end, with the file's name; what ran on is not disturbed.
TEST(MemoryTrace, AFullDiskIsAnErrorAtTheEnd) {
  for (std::int64_t at = 1; at < 20; ++at) {
    const TempDirectory dir;
    FaultyDisk disk;
    disk.mode = FaultyDisk::Mode::no_space;
    disk.at = at;
    FileSystem fs(disk);
    const FileSystemOverride scope(fs);
    CachingAllocator memory(source_of(false), "meta");
    std::string message;
    std::uint64_t allocations = 0;
    try {
      AllocatorTrace trace(dir.file("t"), memory);
      for (int i = 0; i < 20'000; ++i) {
        memory.deallocate(memory.allocate(1000));
        ++allocations;
      }
      trace.finish();
    } catch (const Error& e) {
      EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(ErrorKind::io));
      message = e.what();
    }
    EXPECT_EQ(memory.stats().allocated, 0U);
    if (disk.calls < at) {
      EXPECT_EQ(message, "");
      EXPECT_GE(at, 7) << "too few writes to test";
      return;
    }
    EXPECT_TRUE(at <= 2 || allocations == 20'000U) << "not at the end: call " << at;
    expect_in(dir.file("t"), message);
    expect_in("No space left on device", message);
  }
  FAIL() << "a call failed every time";
}

// Who does not come to finish(), leaves what was heard.
TEST(MemoryTrace, AnAbandonedTraceIsKept) {
  const TempDirectory dir;
  CachingAllocator memory(source_of(false), "meta");
  {
    const AllocatorTrace trace(dir.file("t"), memory);
    record_a_little(memory);
  }
  memory.deallocate(memory.allocate(1));
  const TraceReplay r = replay_trace(dir.file("t"));
  EXPECT_EQ(r.figures.events, 5U);
  EXPECT_FALSE(r.recorded);
}

}  // namespace
}  // namespace duet::test
