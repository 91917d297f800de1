// Runs under limits from far too small to enough: each ends well or is refused, never by a signal,
// and a setting that is advised runs. DUET_SWEEP_LIMITS limits instead of a dozen: nightly.
#include "tests/tools/memory_sweep.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

namespace duet::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class MemorySweepTest : public CommandTest {
 protected:
  Ended under(const std::vector<std::string>& command, const Limit& limit) const {
    return duet(command, {{}, limit, {}});
  }
  std::vector<std::string> run(const std::vector<std::string>& more) {
    std::vector<std::string> settings = {"--n_embd",     "64", "--block_size",    "64",
                                         "--batch_size", "32", "--max_iters",     "3",
                                         "--threads",    "2",  "--eval_interval", "2"};
    settings.insert(settings.end(), more.begin(), more.end());
    return training("run" + std::to_string(runs_++), settings);
  }
  // What must hold of one run under a limit; true when it trained.
  bool ends_well(const std::string& limit_text, const Limit& limit) {
    SCOPED_TRACE(limit_text);
    const Ended ended = under(run({}), limit);
    EXPECT_TRUE(ended.code == 0 || ended.code == 3) << ended.code << ended.err;
    if (ended.code == 0) return true;
    EXPECT_EQ(ended.err.rfind("error: ", 0), 0U) << ended.err;
    ++refused_;
    const std::vector<std::string> flags = advised_flags(ended.err);
    if (flags.empty()) return false;
    ++advised_;
    const Ended again = under(run(flags), limit);
    EXPECT_EQ(again.code, 0) << ended.err << again.err;
    return false;
  }
  // Limits spread over [low, high].
  template <class F>
  void sweep(std::uint64_t low, std::uint64_t high, F&& limit_of) {
    const char* const given = std::getenv("DUET_SWEEP_LIMITS");
    const std::uint64_t count = given == nullptr ? 12 : std::strtoull(given, nullptr, 10);
    int trained = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t bytes = low + (high - low) * i / (count - 1);
      trained += ends_well(std::to_string(bytes >> 10) + " KiB", limit_of(bytes)) ? 1 : 0;
    }
    EXPECT_GE(trained, 1);
    EXPECT_GE(refused_, 1);
    EXPECT_GE(advised_, 1);
    RecordProperty("trained", trained);
    RecordProperty("refused", refused_);
    RecordProperty("advised", advised_);
  }
  // The smallest limit, to a MiB, under which the program itself starts.
  std::uint64_t least(decltype(RLIMIT_AS) resource) const {
    std::uint64_t bad = 8 * kMiB, good = 2048 * kMiB;
    while (good - bad > kMiB) {
      const std::uint64_t middle = bad + (good - bad) / 2;
      (under({"--version"}, ulimit(resource, middle)).code == 0 ? good : bad) = middle;
    }
    return good;
  }

  int runs_ = 0, refused_ = 0, advised_ = 0;
};

TEST_F(MemorySweepTest, AddressSpace) {
  const std::uint64_t low = least(RLIMIT_AS);
  sweep(low, low + 140 * kMiB, [](std::uint64_t bytes) { return ulimit(RLIMIT_AS, bytes); });
}

TEST_F(MemorySweepTest, DataSegment) {
  const std::uint64_t low = least(RLIMIT_DATA);
  sweep(low, low + 120 * kMiB, [](std::uint64_t bytes) { return ulimit(RLIMIT_DATA, bytes); });
}

TEST_F(MemorySweepTest, ControlGroup) {
  if (!MemoryGroup::root()) GTEST_SKIP() << "no control group for memory can be made here";
  std::vector<std::unique_ptr<MemoryGroup>> groups;
  sweep(24 * kMiB, 100 * kMiB, [&](std::uint64_t bytes) {
    groups.push_back(std::make_unique<MemoryGroup>("sweep" + std::to_string(bytes), bytes));
    return groups.back()->limit();
  });
}

// 112 MB of text cost five bytes each, and the group that held them killed the run.
TEST_F(MemorySweepTest, ATextLargerThanHalfOfItsGroup) {
  if (!MemoryGroup::root()) GTEST_SKIP() << "no control group for memory can be made here";
  std::string text;
  for (int i = 0; text.size() < (1U << 20); ++i) text += "line " + std::to_string(i) + " of it\n";
  std::ofstream large(directory_ / "large.txt", std::ios::binary);
  for (int i = 0; i < 107; ++i) large << text;
  large.close();
  const MemoryGroup group("text", 200'000'000);
  const Ended ended = under(run({"--data", "large.txt"}), group.limit());
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_LT(ended.peak_resident, 80'000'000U);
}

// process_bytes is what the run takes at most, and little more.
TEST_F(MemorySweepTest, TheProcessIsPlannedWithinATenth) {
  const std::vector<std::vector<std::string>> settings = {
      {"--diagnostics", "0"},
      {"--n_embd", "128", "--n_layer", "4"},
      {"--batch_size", "128"},
      {"--n_embd", "256", "--block_size", "128", "--batch_size", "16", "--coupling", "euler"},
      {"--data", "large.txt", "--block_size", "16"}};
  std::ofstream(directory_ / "large.txt") << std::string(40'000'000, 'x');
  for (const auto& more : settings) {
    std::vector<std::string> command = run(more);
    const Ended ended = duet(command);
    ASSERT_EQ(ended.code, 0) << ended.err;
    command.front() = "profile";
    command.insert(command.end(), {"--plan", "--depth", "0", "--json", "plan.json"});
    ASSERT_EQ(duet(command).code, 0);
    const auto plan = nlohmann::json::parse(read_all(directory_ / "plan.json"));
    const auto planned = plan["process_bytes"].get<double>();
    const auto measured = static_cast<double>(ended.peak_resident);
    EXPECT_GE(planned, measured) << more[1];
    EXPECT_LE(planned, 1.1 * measured) << more[1];
  }
}

}  // namespace
}  // namespace duet::test
