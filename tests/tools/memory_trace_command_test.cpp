// A trace of `duet train`: replayed, it gives the figures of the process that wrote it.
#include <nlohmann/json.hpp>

#include "runtime/memory_trace.h"
#include "tests/tools/process.h"

namespace duet::test {
namespace {

class MemoryTraceCommandTest : public CommandTest {};

TEST_F(MemoryTraceCommandTest, ReplaysToTheByte) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--coupling", "euler"},
        std::vector<std::string>{"--family", "gpt2", "--recompute", "block", "--dropout", "0.1",
                                 "--gradient_accumulation_steps", "2", "--alloc_poison"}}) {
    std::vector<std::string> arguments = more;
    arguments.insert(arguments.end(), {"--alloc_trace", "t.trace"});
    const Ended run = duet(training(more[1], arguments));
    ASSERT_EQ(run.code, 0) << run.err;
    const TraceReplay r = replay_trace((directory_ / "t.trace").string());
    ASSERT_TRUE(r.recorded);
    EXPECT_EQ(r.figures.peak_allocated, r.recorded->peak_allocated);
    EXPECT_EQ(r.figures.peak_reserved, r.recorded->peak_reserved);
    std::ifstream metrics(directory_ / more[1] / "metrics.jsonl");
    std::uint64_t peak = 0;  // as the allocator told it itself
    for (std::string line; std::getline(metrics, line);) {
      const auto step = nlohmann::json::parse(line);
      if (step.contains("memory/peak_bytes")) peak = step["memory/peak_bytes"];
    }
    EXPECT_GT(peak, 100'000U);
    EXPECT_GE(r.figures.peak_allocated, peak);  // the last evaluation may lie higher
    EXPECT_LE(r.figures.peak_allocated, peak + peak / 2);
  }
}

// What a profile records, measured or planned, and what --replay makes of it.
TEST_F(MemoryTraceCommandTest, ProfileReplaysWhatItRecorded) {
  std::string figures[2];
  for (const bool plan : {false, true}) {
    std::vector<std::string> arguments{
        "profile", "--preset",      "tiny",    "--n_layer",    "2",           "--steps",
        "1",       "--warmup",      "0",       "--batch_size", "2",           "--block_size",
        "64",      "--alloc_trace", "t.trace", "--json",       "profile.json"};
    if (plan) arguments.emplace_back("--plan");
    const Ended profile = duet(arguments);
    ASSERT_EQ(profile.code, 0) << profile.err;
    const Ended replay = duet({"profile", "--replay", "t.trace", "--json", "replay.json"});
    ASSERT_EQ(replay.code, 0) << replay.err;
    for (const char* part : {"peak live ", "peak reserved ", "fragmentation ", "largest owners",
                             "the same peaks, to the byte", "saved for backward", "blocks.1."}) {
      EXPECT_NE(replay.out.find(part), std::string::npos) << part << replay.out;
    }
    const auto recorded = nlohmann::json::parse(read_all(directory_ / "profile.json"));
    const auto replayed = nlohmann::json::parse(read_all(directory_ / "replay.json"));
    EXPECT_EQ(replayed["peak_bytes"], recorded["peak_bytes"]);
    EXPECT_EQ(replayed["peak_reserved_bytes"], recorded["peak_reserved_bytes"]);
    std::uint64_t owned = 0, held = 0;
    for (const auto& owner : replayed["owners"]) owned += owner["bytes"].get<std::uint64_t>();
    for (const auto& segment : replayed["segments"]) held += segment["bytes"].get<std::uint64_t>();
    EXPECT_EQ(owned, replayed["peak_bytes"].get<std::uint64_t>());
    EXPECT_EQ(held, replayed["reserved_at_peak_bytes"].get<std::uint64_t>());
    figures[plan ? 1 : 0] = replay.out;
  }
  EXPECT_EQ(figures[0], figures[1]);
}

TEST_F(MemoryTraceCommandTest, ReplayRefusesOtherFiles) {
  const Ended text = duet({"profile", "--replay", "text.txt"});
  EXPECT_EQ(text.code, 2);
  EXPECT_NE(text.err.find("text.txt:1: this is no memory trace: got \"Line 0: the"),
            std::string::npos)
      << text.err;
  EXPECT_EQ(duet({"profile", "--replay", "."}).code, 2);
  EXPECT_EQ(duet({"profile", "--replay", "none"}).code, 2);
}

TEST_F(MemoryTraceCommandTest, RefusesAPathThatCannotBeWritten) {
  const Ended full = duet(training("run", {"--alloc_trace", "/dev/full"}));
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.err.find("/dev/full: cannot write"), std::string::npos) << full.err;
  EXPECT_NE(full.err.find("No space left on device"), std::string::npos) << full.err;
  EXPECT_FALSE(fs::exists(directory_ / "run"));
  const Ended nowhere = duet(training("other", {"--alloc_trace", "none/t"}));
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_NE(nowhere.err.find("none/t: cannot open for writing"), std::string::npos);
  EXPECT_FALSE(fs::exists(directory_ / "other"));
}

}  // namespace
}  // namespace duet::test
