// Values that follow from other keys are not saved as a choice: a run from the same file, or a
// resume, derives its own.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/runtime/temp_directory.h"
#include "train/config.h"

namespace duet::test {
namespace {

class ConfigDerivedTest : public testing::Test {
 protected:
  ResolvedConfig resolved(const std::string& file,
                          const std::vector<std::pair<const char*, const char*>>& flags,
                          bool resume = false) const {
    std::vector<Setting> settings = {{"out_dir", FlagText{dir_.file("run")}, "--out_dir"}};
    for (const auto& [key, value] : flags) settings.push_back({key, FlagText{value}, key});
    return resolve_config({file.empty() ? "" : dir_.file(file), settings, resume});
  }
  void save(const ResolvedConfig& config) const {
    std::filesystem::create_directories(dir_.file("run"));
    write_bytes(dir_.file("run/config.toml"), config_toml(config));
  }
  TempDirectory dir_;
};

TEST_F(ConfigDerivedTest, IsDerivedAnew) {
  ResolvedConfig first = resolved("", {{"max_iters", "30"}});
  first.run.model.vocab_size = 256;  // as the tokenizer says
  save(first);
  const ResolvedConfig shorter = resolved("run/config.toml", {{"max_iters", "10"}});
  EXPECT_EQ(shorter.run.warmup_iters, 1);
  EXPECT_EQ(shorter.run.model.vocab_size, 0);  // that of its own tokenizer
  EXPECT_EQ(resolved("", {{"max_iters", "30"}}, true).run.warmup_iters, 3);
  EXPECT_TRUE(resolved("", {{"max_iters", "30"}}, true).changes.empty());
  const ResolvedConfig longer = resolved("", {{"max_iters", "3000"}}, true);
  EXPECT_EQ(longer.run.warmup_iters, 100);
  EXPECT_EQ(longer.changes.back(), "warmup_iters 3 -> 100");
}

TEST_F(ConfigDerivedTest, WhatWasChosenStays) {
  save(resolved("", {{"max_iters", "30"}, {"warmup_iters", "3"}}));
  EXPECT_EQ(resolved("", {{"max_iters", "3000"}}, true).run.warmup_iters, 3);
  write_bytes(dir_.file("old.toml"), "warmup_iters = 3  # default\nvocab_size = 256  # default\n");
  EXPECT_EQ(resolved("old.toml", {}).run.model.vocab_size, 256);
  EXPECT_EQ(resolved("old.toml", {}).run.warmup_iters, 3);
}

}  // namespace
}  // namespace duet::test
