// Lives of one tiny run that saves after every step: from a start or a resume to its end, on a disk
// that may fail. What each leaves is compared with a run that nothing disturbed.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/runtime/errors.h"
#include "tests/runtime/faulty_disk.h"
#include "tests/train/train_support.h"
#include "train/checkpoint.h"
#include "train/checkpoint_files.h"
#include "train/metrics.h"
#include "train/reporters.h"
#include "train/run_directory.h"
#include "train/trainer.h"

namespace duet::test {

struct Life {
  enum class End : std::uint8_t { done, error, killed };
  End end = End::done;
  ErrorKind kind = ErrorKind::internal;
  std::string message;  // of the error
  std::string notices;
  std::vector<std::pair<std::int64_t, std::string>> saved;  // steps and directories, as reported
  std::map<std::int64_t, std::string> losses;               // every bit of them, per step
};

// What an undisturbed run computes, and how a disturbed one is measured against it.
class LifeCheck {
 public:
  LifeCheck() {
    config_ = tiny_run(texts_);
    config_.max_iters = 4;
    config_.warmup_iters = 1;
    config_.eval_interval = 2;
    config_.eval_iters = 1;
    config_.save_interval = 1;
    config_.log_interval = 1;
    config_.diagnostics = 0;
    config_.out_dir = texts_.file("straight");
    FaultyDisk sound;
    const Life straight = live(config_.out_dir, sound);
    losses_ = straight.losses;
    for (const auto& [step, directory] : straight.saved) {
      tensors_[step] = checkpoint_tensors(directory);
    }
    log_ = log_lines(config_.out_dir);
    config_.keep = 2;            // from here on they also prune
    EXPECT_EQ(log_.size(), 5U);  // step 0 was evaluated
  }

  // One life in `out_dir`: resumed if there is something to resume. `on_saved` hears of each
  // checkpoint once it is on the disk.
  Life live(const std::string& out_dir, SystemCalls& calls,
            const std::function<void(std::int64_t)>& on_saved = {}) const {
    struct Saves final : Reporter {
      Life life;
      const std::function<void(std::int64_t)>* told = nullptr;
      void on_step(const StepReport& r) override {
        std::ostringstream text;
        text << std::hexfloat << r.loss << ' ' << r.grad_norm << ' ' << r.lr << ' ' << r.tokens;
        life.losses[r.step] = text.str();
      }
      void on_checkpoint(std::int64_t step, const std::string& directory) override {
        life.saved.emplace_back(step, directory);
        if (*told) (*told)(step);
      }
      void on_notice(const std::string& text) override { life.notices += text + "\n"; }
    } saves;
    saves.told = &on_saved;
    RunConfig config = config_;
    config.out_dir = out_dir;
    config.resume = has_run(out_dir);
    FileSystem files(calls);
    const FileSystemOverride use(files);
    Metrics metrics(out_dir, config.log_interval, saves);
    Reporters reporters({&saves, &metrics});
    TrainContext context;
    context.reporter = &reporters;
    try {
      train(config, context);
      metrics.flush();
    } catch (const FaultyDisk::Killed&) {
      saves.life.end = Life::End::killed;
    } catch (const Error& error) {
      saves.life.end = Life::End::error;
      saves.life.kind = error.kind();
      saves.life.message = error.what();
    }
    return saves.life;
  }

  // After a life, whatever became of it: what it finished is there, and nothing else passes.
  void check_left(const std::string& out_dir, const Life& life) const {
    for (const auto& [step, loss] : life.losses) EXPECT_EQ(loss, losses_.at(step)) << step;
    std::vector<std::int64_t> finished;
    for (const auto& [step, directory] : life.saved) finished.push_back(step);
    check_files(out_dir, finished);
  }
  // `finished`: the steps of checkpoints that were on the disk, in order.
  void check_files(const std::string& out_dir, const std::vector<std::int64_t>& finished) const {
    std::int64_t newest = 0;
    std::set<std::int64_t> good;
    for (const CheckpointCandidate& c : list_checkpoints(out_dir + "/checkpoints")) {
      try {
        Recorder quiet;
        const auto reader = CheckpointReader::open(c.path, quiet, true);
        good.insert(reader.state().step);
        newest = std::max(newest, reader.state().step);
        ++accepted;
        EXPECT_TRUE(checkpoint_tensors(c.path) == tensors_.at(reader.state().step)) << c.path;
      } catch (const Error& error) {
        EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(ErrorKind::file))
            << error.what();
      }
    }
    for (const std::int64_t step : finished) {
      const auto newer = std::distance(good.upper_bound(step), good.end());
      if (good.contains(step) || newer >= 2) continue;  // only older ones are pruned
      ++lost;
      ADD_FAILURE() << "the checkpoint of step " << step << " is lost";
    }
    check_log(out_dir, newest);
  }
  // Resumes and runs to the end: every bit and every line are those of the undisturbed run.
  void check_end(const std::string& out_dir, SystemCalls& calls) const {
    const Life life = live(out_dir, calls);
    EXPECT_EQ(static_cast<int>(life.end), static_cast<int>(Life::End::done)) << life.message;
    for (const auto& [step, loss] : life.losses) EXPECT_EQ(loss, losses_.at(step)) << step;
    Recorder quiet;
    const auto reader = CheckpointReader::open(out_dir, quiet, true);
    EXPECT_EQ(reader.state().step, config_.max_iters);
    const bool same = checkpoint_tensors(reader.directory()) == tensors_.at(config_.max_iters);
    unequal += same ? 0 : 1;
    EXPECT_TRUE(same);
    EXPECT_EQ(log_lines(out_dir), log_);
    if (life.losses.empty()) return;  // already complete: nothing more is tidied up
    for (const std::string& name : entries(out_dir + "/checkpoints")) {
      EXPECT_NE(name[0], '.') << name;
    }
  }
  void check_end(const std::string& out_dir) const {
    FaultyDisk sound;
    check_end(out_dir, sound);
  }

  std::int64_t steps() const { return std::ssize(tensors_); }  // those that are saved

  mutable std::int64_t accepted = 0, lost = 0, unequal = 0;

 private:
  // The lines up to the first that is torn, without what differs between two equal runs.
  static std::vector<std::string> log_lines(const std::string& out_dir) {
    std::istringstream in(read_bytes(out_dir + "/metrics.jsonl"));
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) {
      auto json = nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!json.is_object() || in.eof()) break;
      for (const char* key : {"time", "train/tok_per_sec", "memory/peak_bytes"}) json.erase(key);
      lines.push_back(json.dump());
    }
    return lines;
  }
  // Each step once, in order, and no step of the newest checkpoint missing.
  void check_log(const std::string& out_dir, std::int64_t newest) const {
    const std::vector<std::string> lines = log_lines(out_dir);
    EXPECT_LE(lines.size(), log_.size());
    for (std::size_t i = 0; i < std::min(lines.size(), log_.size()); ++i) {
      const auto step = static_cast<std::int64_t>(i);  // every step has a line, from 0
      if (step > newest && lines[i] != log_[i]) {
        // What training says is written before the evaluation joins it.
        EXPECT_EQ(nlohmann::ordered_json::parse(lines[i])["step"], step);
        continue;
      }
      EXPECT_EQ(lines[i], log_[i]);
    }
    if (newest > 0) {
      EXPECT_GT(static_cast<std::int64_t>(lines.size()), newest)
          << "the newest checkpoint is of step " << newest;
    }
  }

  TempDirectory texts_;
  RunConfig config_;
  std::map<std::int64_t, std::string> losses_;
  std::map<std::int64_t, std::map<std::string, std::string>> tensors_;
  std::vector<std::string> log_;
};

}  // namespace duet::test
