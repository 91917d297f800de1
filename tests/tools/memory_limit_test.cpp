// --memory_limit of duet train: refused before the first step, with advice that is true.
#include "tests/runtime/same_text.h"
#include "tests/tools/memory_sweep.h"

namespace duet::test {
namespace {

class MemoryLimitTest : public CommandTest {};

TEST_F(MemoryLimitTest, ARunThatExceedsItIsRefusedWithASettingThatFits) {
  const std::vector<std::string> wide = {"--n_embd",     "128", "--block_size",   "64",
                                         "--batch_size", "128", "--memory_limit", "64MiB",
                                         "--max_iters",  "2",   "--threads",      "2"};
  const auto before = snapshot(directory_);
  const Ended refused = duet(training("run", wide));
  EXPECT_EQ(refused.code, 3) << refused.err;
  EXPECT_EQ(refused.out, "");
  EXPECT_TRUE(same_files(snapshot(directory_), before));
  EXPECT_NE(refused.err.find("expected at most 64.0 MiB: memory_limit"), std::string::npos)
      << refused.err;
  EXPECT_NE(refused.err.find(" planned for the process ("), std::string::npos) << refused.err;
  std::vector<std::string> settings = wide;
  for (const std::string& word : advised_flags(refused.err)) settings.push_back(word);
  ASSERT_EQ(settings.size(), wide.size() + 6) << refused.err;
  const Ended ended = duet(training("run", settings));
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find(" planned at peak, the process at most "), std::string::npos)
      << ended.out;
  // malloc keeps what products freed, and one run in ten kept 8 MiB more than was planned.
  EXPECT_LE(ended.peak_resident, std::uint64_t{72} << 20);
}

TEST_F(MemoryLimitTest, WhereNothingFitsTheModelIsTooLarge) {
  const Ended weights = duet(training("run", {"--n_embd", "512", "--memory_limit", "10MiB"}));
  EXPECT_EQ(weights.code, 3);
  EXPECT_NE(weights.err.find("use a smaller model"), std::string::npos) << weights.err;
  const Ended batch = duet(training("run", {"--memory_limit", "250KiB"}));
  EXPECT_EQ(batch.code, 3);
  EXPECT_NE(batch.err.find("no batch fits: --batch_size 1"), std::string::npos) << batch.err;
  EXPECT_FALSE(fs::exists(directory_ / "run"));
}

TEST_F(MemoryLimitTest, NonsenseIsUsage) {
  for (const char* text : {"much", "-1GiB", "10Mib/s", "0", "1e9"}) {
    const Ended ended = duet(training("run", {"--memory_limit", text}));
    EXPECT_EQ(ended.code, 2) << text;
    EXPECT_NE(ended.err.find("expected a size such as 16GiB"), std::string::npos) << ended.err;
  }
  const Ended bfloat16 = duet(training("run", {"--dtype", "bfloat16"}));
  EXPECT_EQ(bfloat16.code, 2);
  EXPECT_NE(bfloat16.err.find("bfloat16 has no kernels on the CPU"), std::string::npos)
      << bfloat16.err;
  EXPECT_FALSE(fs::exists(directory_ / "run"));
}

}  // namespace
}  // namespace duet::test
