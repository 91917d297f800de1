// Resume: whatever the interruption points, the run ends with the same bits, the same log and the
// same order of data (C14, C18, C49).
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tests/runtime/errors.h"
#include "tests/runtime/same_text.h"
#include "tests/train/train_support.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace duet::test {
namespace {

constexpr int kSignal = 15;

// What a user sees of a run, and what it leaves.
struct Story {
  std::vector<std::string> log;
  std::map<std::string, std::string> tensors;
  std::string state;
};

std::string line(const StepReport& r) {
  std::ostringstream text;
  text << std::hexfloat << "step " << r.step << ' ' << r.tokens << ' ' << r.loss << ' '
       << r.grad_norm << ' ' << r.lr;
  return text.str();
}
std::string line(const EvalReport& r) {
  std::ostringstream text;
  text << std::hexfloat << "eval " << r.step << ' ' << r.tokens << ' ' << r.loss << ' ' << r.best;
  return text.str();
}

// Runs to the end, stopped by a signal after each of `stops` and resumed.
Story tell(RunConfig config, const std::vector<std::int64_t>& stops) {
  Story story;
  std::string last;
  for (std::size_t part = 0; part <= stops.size(); ++part) {
    Recorder reporter;
    const StopScope stop;
    reporter.after_step = [&](const StepReport& r) {
      story.log.push_back(line(r));
      if (part < stops.size() && r.step == stops[part]) request_stop(kSignal);
    };
    reporter.after_eval = [&](const EvalReport& r) { story.log.push_back(line(r)); };
    TrainContext context;
    context.reporter = &reporter;
    const TrainResult result = train(config, context);
    const bool interrupted = part < stops.size();
    EXPECT_EQ(result.signal, interrupted ? kSignal : 0);
    EXPECT_EQ(result.step, interrupted ? stops[part] : config.max_iters);
    EXPECT_EQ(reporter.starts[0].step, part == 0 ? 0 : stops[part - 1]);
    EXPECT_EQ(reporter.starts[0].resumed_from, last);
    EXPECT_EQ(reporter.notices, "");
    last = result.checkpoint;
    config.resume = true;
  }
  story.tensors = checkpoint_tensors(last);
  Recorder quiet;
  TrainState state = CheckpointReader::open(last, quiet, true).state();
  state.run_id.clear();
  story.state = to_json(state);
  return story;
}

void expect_same(const Story& a, const Story& b) {
  EXPECT_EQ(a.log, b.log);
  EXPECT_TRUE(a.tensors == b.tensors);
  EXPECT_EQ(a.state, b.state);
}

void check_every_stop(const std::function<void(RunConfig&)>& change) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  change(config);
  config.out_dir = dir.file("straight");
  const Story straight = tell(config, {});
  int number = 0;
  // At the first step, at an evaluation (4, 8), just before the end, one after another.
  for (const std::vector<std::int64_t>& stops :
       std::vector<std::vector<std::int64_t>>{{1}, {4}, {7}, {11}, {3, 4, 5, 9}}) {
    SCOPED_TRACE(concat("stops from ", stops[0]));
    config.out_dir = dir.file(concat("run", number++));
    expect_same(tell(config, stops), straight);
  }
}

TEST(Resume, PlainRunOnTwoThreads) {
  check_every_stop([](RunConfig& c) { c.threads = 2; });
}

TEST(Resume, DropoutAccumulationAndGroupedQueries) {
  check_every_stop([](RunConfig& c) {
    c.model.dropout = 0.2;
    c.model.n_head = 4;
    c.model.n_kv_head = 2;
    c.gradient_accumulation_steps = 3;
    c.model.recompute = RecomputeMode::block;
  });
}

TEST(Resume, DifferentialAttention) {
  for (const Scoring scoring : {Scoring::diff, Scoring::diff_v2}) {
    check_every_stop([=](RunConfig& c) {
      c.model.scoring = scoring;
      c.model.dropout = 0.1;
    });
  }
}

TEST(Resume, AcrossEpochs) {
  check_every_stop([](RunConfig& c) {
    c.model.block_size = 64;  // 15 windows: an epoch ends within step 4
    c.batch_size = 4;
  });
}

TEST(Resume, Gpt2WithWarmupStableDecay) {
  check_every_stop([](RunConfig& c) {
    c.model.family = Family::gpt2;
    c.model.coupling = CouplingKind::none;
    c.model.activation = Activation::gelu_tanh;
    c.model.bias = true;
    c.schedule = ScheduleKind::wsd;
  });
}

// A kill loses the steps since the last save, which come again with the same numbers.
TEST(Resume, FromAnEarlierCheckpoint) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  config.out_dir = dir.file("straight");
  const Story straight = tell(config, {});
  for (const char* gone : {"step_00000012", "step_00000008"}) {
    std::filesystem::remove_all(concat(config.out_dir, "/checkpoints/", gone));
  }
  config.resume = true;
  Recorder reporter;
  TrainContext context;
  context.reporter = &reporter;
  std::vector<std::string> log;
  reporter.after_step = [&](const StepReport& r) { log.push_back(line(r)); };
  reporter.after_eval = [&](const EvalReport& r) { log.push_back(line(r)); };
  train(config, context);
  EXPECT_EQ(reporter.starts[0].step, 4);
  ASSERT_LT(log.size(), straight.log.size());
  EXPECT_TRUE(std::equal(log.rbegin(), log.rend(), straight.log.rbegin()));
  Recorder quiet;
  const auto reader = CheckpointReader::open(config.out_dir, quiet, true);
  EXPECT_EQ(reader.state().step, 12);
  EXPECT_TRUE(checkpoint_tensors(reader.directory()) == straight.tensors);
}

TEST(Resume, AFinishedRunIsLeftAlone) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  TrainContext context;
  Recorder reporter;
  context.reporter = &reporter;
  const TrainResult first = train(config, context);
  const auto before = snapshot(dir.path());
  config.resume = true;
  const TrainResult again = train(config, context);
  EXPECT_TRUE(again.already_complete);
  EXPECT_EQ(again.step, 12);
  EXPECT_EQ(again.checkpoint, first.checkpoint);
  EXPECT_EQ(again.best_loss, first.best_loss);
  expect_in("already complete", reporter.notices);
  EXPECT_TRUE(same_files(snapshot(dir.path()), before));
  // More iterations go on.
  config.max_iters = 14;
  EXPECT_EQ(train(config, context).step, 14);
}

// A run that was stopped between evaluations owes one only if it ends there.
TEST(Resume, FewerStepsThanTheRunHasChangeNothing) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  config.eval_interval = 5;
  TrainContext context;
  Recorder reporter;
  context.reporter = &reporter;
  reporter.after_step = [&](const StepReport& r) {
    if (r.step == 8) request_stop(SIGINT);
  };
  {
    const StopScope stop;
    EXPECT_EQ(train(config, context).step, 8);
  }
  const auto before = snapshot(dir.path());
  config.resume = true;
  config.max_iters = 7;
  const TrainResult less = train(config, context);
  EXPECT_TRUE(less.already_complete);
  EXPECT_EQ(less.step, 8);
  EXPECT_TRUE(same_files(snapshot(dir.path()), before));
}

TEST(Resume, FallsBackToAnOlderCheckpointAndSaysSo) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  config.out_dir = dir.file("straight");
  const Story straight = tell(config, {});
  for (const char* bad : {"step_00000012", "step_00000008"}) {
    const std::string path = concat(config.out_dir, "/checkpoints/", bad, "/optim.safetensors");
    std::string bytes = read_bytes(path);
    bytes[bytes.size() - 3] = static_cast<char>(bytes[bytes.size() - 3] ^ 4);
    write_bytes(path, bytes);
  }
  config.resume = true;
  config.max_iters = 13;
  config.schedule = ScheduleKind::constant;
  Recorder reporter;
  TrainContext context;
  context.reporter = &reporter;
  train(config, context);
  EXPECT_EQ(reporter.starts[0].step, 4);
  expect_in("step_00000012 is not usable", reporter.notices);
  expect_in("step_00000008 is not usable", reporter.notices);
}

TEST(Resume, RefusesAnotherModelTokenizerDataOrDtype) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  config.max_iters = 4;
  train(config);
  config.max_iters = 8;
  config.resume = true;
  const auto before = snapshot(config.out_dir + "/checkpoints");
  const auto refused = [&](ErrorKind kind, auto&& change) {
    RunConfig other = config;
    change(other);
    const std::string text = error_of(kind, [&] { train(other); });
    EXPECT_TRUE(same_files(snapshot(config.out_dir + "/checkpoints"), before));
    return text;
  };
  const std::string model = refused(ErrorKind::usage, [](RunConfig& c) {
    c.model.n_embd = 32;
    c.model.coupling = CouplingKind::none;
  });
  expect_in("n_embd: 16 and 32", model);
  expect_in("coupling: \"euler\" and \"none\"", model);
  expect_in("the checkpoint is f32, the run is f64",
            refused(ErrorKind::usage, [](RunConfig& c) { c.dtype = "float64"; }));
  const std::string text = read_bytes(dir.file("text"));
  write_bytes(dir.file("text"), text.substr(0, 500) + "X" + text.substr(501));
  expect_in("is not the file that the run began with", refused(ErrorKind::file, [](RunConfig&) {}));
  write_bytes(dir.file("text"), text);
  EXPECT_EQ(train(config).step, 8);
}

// C14: a flag that overrides what was saved is announced; step count and moments stay.
TEST(Resume, AnnouncesWhatChanges) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  config.beta2 = 0.95;
  config.max_iters = 4;
  const std::string saved = train(config).checkpoint;
  config.resume = true;
  config.beta2 = 0.999;
  config.max_iters = 5;
  config.threads = 2;
  Recorder reporter;
  TrainContext context;
  context.reporter = &reporter;
  train(config, context);
  expect_in("beta2 (moments and step count are kept) was 0.95, now 0.999", reporter.notices);
  expect_in("threads (results may differ in the last bits) was 1, now 2", reporter.notices);
  Recorder quiet;
  const auto reader = CheckpointReader::open(config.out_dir, quiet, true);
  EXPECT_EQ(reader.state().optimizer_steps, 5);
  EXPECT_EQ(reader.state().adamw.beta2, 0.999);
}

// C52
TEST(Resume, WeightsOnlyPointsToInitFrom) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  config.max_iters = 4;
  const std::string saved = train(config).checkpoint;
  std::filesystem::remove(saved + "/optim.safetensors");
  config.resume = true;
  config.max_iters = 6;
  Recorder reporter;
  TrainContext context;
  context.reporter = &reporter;
  error_of(ErrorKind::file, [&] { train(config, context); });
  expect_in(
      "weights only, there is no optim.safetensors; to start a new run from them, use "
      "--init_from",
      reporter.notices);
  config.resume = false;
  config.init_from = saved;
  config.out_dir = dir.file("new");
  const TrainResult result = train(config, context);
  EXPECT_EQ(result.step, 6);
}

// C16
TEST(Resume, InitFromAnotherShapeIsRefused) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  config.max_iters = 1;
  config.init_from = train(config).checkpoint;
  config.model.n_embd = 32;
  config.out_dir = dir.file("new");
  expect_in("embedding.weight: the file has F32 [256, 16], the model wants f32 [256, 32]",
            error_of(ErrorKind::file, [&] { train(config); }));
}

}  // namespace
}  // namespace duet::test
