// duet train killed at any moment, again and again, and stopped by signals: what it reported as
// saved is there, and the run that is resumed so often ends with the bits of one that never was.
// The test set kills 30 times; DUET_TEST_SOAK=1 (nightly) 500 times.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/runtime/soak.h"
#include "tests/tools/process.h"
#include "tests/train/train_support.h"
#include "train/checkpoint.h"
#include "train/run_directory.h"

namespace duet::test {
namespace {

class KillCommandTest : public CommandTest {
 protected:
  using Losses = std::vector<std::string>;  // a line of the log without times and rates

  static constexpr int kSteps = 40;

  static std::vector<std::string> run(const std::string& out_dir) {
    return training(out_dir, {"--max_iters", std::to_string(kSteps), "--save_interval", "1",
                              "--log_interval", "1", "--eval_interval", "7", "--n_layer", "1",
                              "--diagnostics", "0", "--dropout", "0.1", "--threads", "1"});
  }
  Losses losses(const std::string& out_dir) const {
    std::istringstream in(read_all(directory_ / out_dir / "metrics.jsonl"));
    Losses out;
    for (std::string line; std::getline(in, line);) {
      auto json = nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!json.is_object()) break;  // torn: the last one, or the comparison fails
      for (const char* key : {"time", "train/tok_per_sec", "memory/peak_bytes"}) json.erase(key);
      out.push_back(json.dump());
    }
    return out;
  }
  std::map<std::string, std::string> end_of(const std::string& out_dir) const {
    return checkpoint_tensors((directory_ / out_dir / "checkpoints").string() + "/step_" +
                              std::string("00000000").replace(6, 2, std::to_string(kSteps)));
  }
  // Starts the run, or goes on with it.
  std::vector<std::string> command(const std::string& out_dir) const {
    if (!has_run((directory_ / out_dir).string())) return run(out_dir);
    return {"train", "--resume", "--out_dir", out_dir};
  }
  // The newest step that a line "step 12 | saved ..." names; `before` if there is none.
  static std::int64_t last_saved(const std::string& out, std::int64_t before) {
    const std::size_t saved = out.rfind(" | saved");
    if (saved == std::string::npos) return before;
    const std::size_t begin = out.rfind("step ", saved);
    return std::stoll(out.substr(begin + 5));
  }
  // Starts or resumes `out_dir` and ends it by `signal` after a while; true: it came to its end.
  bool interrupted(const std::string& out_dir, int signal, std::mt19937_64& random) {
    Process process(directory_, command(out_dir));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % (whole_.count() / 3)));
    process.signal(signal);
    const Ended ended = process.wait();
    const int stopped = signal == SIGKILL ? 1000 + SIGKILL : 128 + signal;
    if (ended.code != stopped) {
      // It may have ended by itself, or have been too young to hear.
      EXPECT_TRUE(ended.code == 0 || ended.code == 1000 + signal) << ended.code << "\n"
                                                                  << ended.err;
    }
    ++(ended.code == 0 ? ends_ : interruptions_);
    saved_ = last_saved(ended.out, saved_);
    check_left(out_dir);
    return ended.code == 0;
  }
  // Every step that is saved for sure has its checkpoint, and every line up to it.
  void check_left(const std::string& out_dir) {
    if (saved_ == 0) return;
    Recorder quiet;
    const auto reader = CheckpointReader::open((directory_ / out_dir).string(), quiet, true);
    const std::int64_t newest = reader.state().step;
    lost_ += newest < saved_ ? 1 : 0;
    EXPECT_GE(newest, saved_);
    EXPECT_EQ(quiet.notices, "");
    Losses lines = losses(out_dir);
    const auto count = static_cast<std::size_t>(newest) + 1;
    EXPECT_GE(lines.size(), count);
    lines.resize(std::min(lines.size(), count));
    const bool same = std::equal(lines.begin(), lines.end(), straight_.begin());
    unequal_ += same ? 0 : 1;
    EXPECT_TRUE(same) << "after " << interruptions_ << " interruptions";
  }
  // Interrupts one run after another until that has happened `count` times.
  void interrupt(const std::vector<int>& signals, std::int64_t count, std::uint64_t seed) {
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(duet(run("straight")).code, 0);
    whole_ = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now() - begin);
    straight_ = losses("straight");
    ASSERT_EQ(straight_.size(), static_cast<std::size_t>(kSteps) + 1);
    const auto end = end_of("straight");
    std::mt19937_64 random(seed);
    for (int number = 0; interruptions_ < count && !HasFailure(); ++number) {
      const std::string out_dir = "run" + std::to_string(number);
      saved_ = 0;
      bool complete = false;
      while (!complete && interruptions_ < count && !HasFailure()) {
        complete = interrupted(out_dir, signals[random() % signals.size()], random);
      }
      if (!complete && !HasFailure()) {
        const Ended last = duet(command(out_dir));
        EXPECT_EQ(last.code, 0) << last.err;
      }
      const bool same_end = end_of(out_dir) == end;
      const Losses got = losses(out_dir);
      unequal_ += same_end && got == straight_ ? 0 : 1;
      EXPECT_TRUE(same_end) << out_dir;
      EXPECT_EQ(got, straight_) << out_dir;
      ++runs_;
    }
    std::printf("interruptions %ld in %ld runs, lost %ld, unequal %ld, %.0f s\n",
                static_cast<long>(interruptions_), static_cast<long>(runs_),
                static_cast<long>(lost_), static_cast<long>(unequal_),
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }

 private:
  std::chrono::microseconds whole_{1};
  Losses straight_;
  std::int64_t interruptions_ = 0, ends_ = 0, runs_ = 0, saved_ = 0, lost_ = 0, unequal_ = 0;
};

TEST_F(KillCommandTest, KilledAgainAndAgain) { interrupt({SIGKILL}, soak() ? 500 : 30, 1); }

TEST_F(KillCommandTest, StoppedAndKilledInTurns) {
  interrupt({SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGXCPU, SIGPWR, SIGKILL}, soak() ? 140 : 14, 2);
}

}  // namespace
}  // namespace duet::test
