// DUET_ISA caps our kernels and oneDNN together, and every command hears it.
#include <nlohmann/json.hpp>

#include "runtime/cpu/cpu_info.h"
#include "tests/tools/process.h"

namespace duet::test {
namespace {

class InstructionSetTest : public CommandTest {
 protected:
  Ended under(const std::string& isa, const std::vector<std::string>& arguments) const {
    return duet(arguments, {{}, {}, {"DUET_ISA=" + isa}});
  }
};

TEST_F(InstructionSetTest, DoctorShowsTheCap) {
  for (const char* none : {"best", ""}) {
    const Ended free = under(none, {"doctor"});
    EXPECT_NE(free.out.find("DUET_ISA   best (no cap)\n"), std::string::npos) << free.out;
  }
  const Ended capped = under("baseline", {"doctor"});
  EXPECT_EQ(capped.code, 0) << capped.err;
  EXPECT_EQ(capped.out.find("kernels    AVX"), std::string::npos) << capped.out;
  for (const char* line : {", SSE4.1\n", "DUET_ISA   baseline (the most that"}) {
    EXPECT_NE(capped.out.find(line), std::string::npos) << capped.out;
  }
}

// A run asks for the names of what it uses, an evaluation does not: the same kernels ran in both.
TEST_F(InstructionSetTest, ARunIsCappedAndSaysSo) {
  const Ended run =
      under("baseline", {"train", "--task",       "mqar", "--vocab_size",    "256", "--block_size",
                         "16",    "--mqar_pairs", "2",    "--n_embd",        "16",  "--batch_size",
                         "4",     "--max_iters",  "3",    "--eval_interval", "3",   "--eval_iters",
                         "0",     "--out_dir",    "run"});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto env = nlohmann::json::parse(read_all(directory_ / "run/env.json"));
  EXPECT_EQ(env["instruction_set_cap"], "baseline");
  EXPECT_NE(env["vector_target"].get<std::string>().substr(0, 3), "AVX");
  EXPECT_EQ(env["onednn"]["isa"], "SSE4.1");
  std::istringstream lines(read_all(directory_ / "run/metrics.jsonl"));
  nlohmann::json last;
  for (std::string line; std::getline(lines, line);) last = nlohmann::json::parse(line);
  const std::vector<std::string> eval = {"eval",   "--checkpoint", "run",
                                         "--json", "--batch_size", "4"};
  EXPECT_EQ(nlohmann::json::parse(under("baseline", eval).out)["loss"], last["val/loss"]);
  EXPECT_NE(run.out.find("| DUET_ISA     baseline: kernels "), std::string::npos) << run.out;
  const Ended plan = under("baseline", {"profile", "--plan", "--preset", "tiny"});
  EXPECT_NE(plan.out.find(" on SSE4.1, "), std::string::npos) << plan.out;
}

TEST_F(InstructionSetTest, WhatCannotBeHadIsRefused) {
  const Ended word = under("AVX2", {"doctor"});
  EXPECT_EQ(word.code, 2);
  EXPECT_EQ(word.err,
            "error: DUET_ISA: not an instruction set: got AVX2, expected baseline, avx2, avx512 or "
            "best\n");
  if (cpu_info().vector_target.starts_with("AVX3")) return;  // this processor has them all
  const Ended avx512 = under("avx512", training("run"));
  EXPECT_EQ(avx512.code, 2);
  EXPECT_EQ(avx512.err.rfind("error: DUET_ISA: this processor does not have that instruction set: "
                             "got avx512, expected",
                             0),
            0U)
      << avx512.err;
  EXPECT_FALSE(fs::exists(directory_ / "run"));
}

}  // namespace
}  // namespace duet::test
