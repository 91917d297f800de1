// Whole runs: what they report and write, what they refuse, and what they do when numbers go bad.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "models/transformer.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/same_text.h"
#include "tests/train/train_support.h"
#include "train/checkpoint.h"
#include "train/run_directory.h"
#include "train/schedule.h"

namespace duet::test {
namespace {

TrainResult run(const RunConfig& config, Recorder& reporter, TrainContext context = {}) {
  context.reporter = &reporter;
  return train(config, context);
}

TEST(Trainer, ARunReportsAndWritesItsFiles) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  config.max_iters = 60;
  config.eval_interval = 20;
  Recorder reporter;
  TrainContext context;
  context.run_files = {{"config.toml", "max_iters = 60\n"}};
  const TrainResult result = run(config, reporter, context);
  EXPECT_EQ(result.step, 60);
  EXPECT_EQ(result.signal, 0);
  EXPECT_FALSE(result.already_complete);
  ASSERT_EQ(reporter.steps.size(), 60U);
  ASSERT_EQ(reporter.evals.size(), 4U);  // steps 0, 20, 40, 60
  EXPECT_EQ(reporter.evals[0].step, 0);
  EXPECT_NEAR(reporter.evals[0].loss, std::log(256.0), 0.3);
  EXPECT_LT(reporter.evals[3].loss, reporter.evals[0].loss - 1.0);
  EXPECT_NEAR(reporter.evals[3].bits_per_byte, reporter.evals[3].loss / std::log(2.0), 1e-12);
  EXPECT_NEAR(reporter.evals[3].ppl, std::exp(reporter.evals[3].loss), 1e-9);
  EXPECT_EQ(reporter.evals[3].coupling_dt.size(), 1U);
  EXPECT_EQ(reporter.saves, (std::vector<std::int64_t>{20, 40, 60}));
  const StepReport& last = reporter.steps.back();
  EXPECT_EQ(last.step, 60);
  EXPECT_EQ(last.lr, learning_rate(schedule_of(config), 59));
  EXPECT_EQ(last.step_tokens, 16);
  EXPECT_GT(last.flops, 0);
  EXPECT_GT(last.memory_bytes, 0U);
  ASSERT_EQ(reporter.starts.size(), 1U);
  EXPECT_EQ(reporter.starts[0].tokens_per_step, 16);
  EXPECT_EQ(reporter.starts[0].train_tokens, 900);
  EXPECT_EQ(reporter.starts[0].val_tokens, 100);
  EXPECT_EQ(reporter.starts[0].model.vocab_size, 256);
  EXPECT_GT(reporter.starts[0].parameters, 256 * 16);
  EXPECT_GT(reporter.starts[0].coupling_parameters, 0);
  EXPECT_GT(reporter.starts[0].planned_bytes, 0U);
  EXPECT_EQ(reporter.notices, "");
  EXPECT_EQ(entries(config.out_dir),
            (std::vector<std::string>{"checkpoints", "config.toml", "run.lock", "tokenizer.json"}));
  EXPECT_EQ(read_bytes(config.out_dir + "/config.toml"), "max_iters = 60\n");
}

TEST(Trainer, SameSeedSameBits) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  Recorder first;
  const std::string a = run(config, first).checkpoint;
  config.out_dir = dir.file("again");
  Recorder second;
  const std::string b = run(config, second).checkpoint;
  EXPECT_EQ(checkpoint_tensors(a), checkpoint_tensors(b));
  config.out_dir = dir.file("other");
  config.seed = 1;
  Recorder third;
  EXPECT_NE(checkpoint_tensors(run(config, third).checkpoint), checkpoint_tensors(a));
}

TEST(Trainer, RefusesBeforeAnythingIsWritten) {
  const TempDirectory dir;
  const RunConfig good = tiny_run(dir);
  const auto refused = [&](ErrorKind kind, auto&& change) {
    RunConfig config = good;
    change(config);
    Recorder reporter;
    const std::string text = error_of(kind, [&] { run(config, reporter); });
    EXPECT_EQ(entries(dir.path()), std::vector<std::string>{"text"});
    return text;
  };
  const auto usage = [&](auto&& change) { return refused(ErrorKind::usage, change); };
  expect_in("CUDA", usage([](RunConfig& c) { c.device = "cuda"; }));
  const std::string bfloat16 = usage([](RunConfig& c) { c.dtype = "bfloat16"; });
  expect_in("bfloat16 has no kernels on the CPU", bfloat16);
  expect_in("duet profile --plan", bfloat16);
  expect_in("dtype", usage([](RunConfig& c) { c.dtype = "int8"; }));
  expect_in("batch_size: got 0", usage([](RunConfig& c) { c.batch_size = 0; }));
  expect_in("grad_clip", usage([](RunConfig& c) { c.grad_clip = -1; }));
  expect_in("grad_clip", usage([](RunConfig& c) { c.grad_clip = std::nan(""); }));
  expect_in("vocab_size: got 100, expected at least the tokenizer's 256",
            usage([](RunConfig& c) { c.model.vocab_size = 100; }));
  expect_in("n_embd", usage([](RunConfig& c) { c.model.n_embd = 15; }));
  expect_in("there is no run to resume", usage([](RunConfig& c) { c.resume = true; }));
  expect_in("needed at least 2001",
            refused(ErrorKind::file, [](RunConfig& c) { c.model.block_size = 2000; }));
  expect_in("none", refused(ErrorKind::file, [&](RunConfig& c) { c.data = dir.file("none"); }));
  const auto from = [&](const std::string& path) {
    return refused(ErrorKind::file, [&](RunConfig& c) {
      c.init_from = path;
      c.out_dir = dir.file("a/b/run");
    });
  };
  expect_in("there is nothing of this name", from(dir.file("none")));
  expect_in("text", from(dir.file("text")));
}

// Memory that ends anywhere before the first step is done: weights, moments, activations.
TEST(Trainer, OutOfMemoryBeforeTheFirstStepLeavesNothing) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  config.model.n_embd = 256;  // 3 MiB of weights
  config.max_iters = 1;
  config.out_dir = dir.file("a/run");
  Allocator& memory = allocator(kCpu);
  int refused = 0;
  const auto run_within = [&](std::size_t limit) {
    memory.empty_cache();
    memory.set_limit(limit);
    Recorder reporter;
    bool done = false;
    try {
      run(config, reporter);
      done = true;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::memory) << e.what();
      ++refused;
    }
    memory.set_limit(0);
    return done;
  };
  memory.empty_cache();
  std::size_t limit = memory.stats().reserved;
  while (!run_within(limit += 700'000)) {
    ASSERT_EQ(entries(dir.path()), std::vector<std::string>{"text"});
  }
  EXPECT_GT(refused, 5);
  const std::size_t enough = limit;
  config.resume = true;
  config.max_iters = 2;
  const auto before = snapshot(config.out_dir);
  for (limit = memory.stats().reserved + 700'000; limit < enough; limit += 2'000'000) {
    if (run_within(limit)) break;
    EXPECT_TRUE(same_files(snapshot(config.out_dir), before));
  }
  EXPECT_GT(refused, 7);
}

// A resume that is refused leaves every byte as it was, the note in the lock file included.
TEST(Trainer, ARefusedResumeChangesNothing) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  Recorder reporter;
  run(config, reporter);
  write_bytes(config.out_dir + "/run.lock", "pid 1 on elsewhere\n");
  std::filesystem::create_directory(config.out_dir + "/checkpoints/.tmp-step_00000099-x");
  config.resume = true;
  config.max_iters = 20;
  config.model.n_embd = 32;
  const auto before = snapshot(config.out_dir);
  const auto names = entries(config.out_dir + "/checkpoints");
  TrainContext context;
  context.run_files = {{"config.toml", "n_embd = 32\n"}};
  expect_in("n_embd", error_of(ErrorKind::usage, [&] { run(config, reporter, context); }));
  EXPECT_TRUE(same_files(snapshot(config.out_dir), before));
  EXPECT_EQ(entries(config.out_dir + "/checkpoints"), names);
}

TEST(Trainer, AnExistingRunNeedsResume) {
  const TempDirectory dir;
  const RunConfig config = tiny_run(dir);
  Recorder reporter;
  run(config, reporter);
  const auto before = snapshot(config.out_dir);
  expect_in("add --resume", error_of(ErrorKind::usage, [&] { run(config, reporter); }));
  EXPECT_TRUE(same_files(snapshot(config.out_dir), before));
}

// Fault 11: the second run names the first and touches nothing.
TEST(Trainer, ASecondRunIsRefusedByTheLock) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  Recorder reporter;
  reporter.after_step = [&](const StepReport& r) {
    if (r.step != 6) return;
    RunConfig second = config;
    second.resume = true;
    Recorder other;
    const auto before = snapshot(config.out_dir);
    const std::string text = error_of(ErrorKind::usage, [&] { run(second, other); });
    expect_in("another run is using it (pid ", text);
    EXPECT_TRUE(same_files(snapshot(config.out_dir), before));
    EXPECT_TRUE(other.starts.empty());
  };
  EXPECT_EQ(run(config, reporter).step, 12);
}

TEST(Trainer, AnUnwritableDirectoryIsFoundFirst) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  write_bytes(dir.file("file"), "x");
  config.out_dir = dir.file("file/run");
  Recorder reporter;
  error_of(ErrorKind::io, [&] { run(config, reporter); });
  EXPECT_TRUE(reporter.starts.empty());
}

// --- Non-finite numbers (fault 14)

TrainContext with_bad_gradient(std::function<bool(std::int64_t)> at) {
  TrainContext context;
  context.hooks.after_backward = [at](std::int64_t step, const std::vector<NamedTensor>& tensors) {
    if (!at(step)) return;
    for (const NamedTensor& t : tensors) {
      if (t.name != "blocks.0.attn.k_proj.weight") continue;
      Tensor g = t.gradient();
      g.mutable_data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
    }
  };
  return context;
}

TEST(Trainer, ABadStepIsSkippedCountedAndNamed) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  Recorder reporter;
  const TrainResult result =
      run(config, reporter, with_bad_gradient([](std::int64_t s) { return s == 6 || s == 8; }));
  EXPECT_EQ(result.step, 12);
  EXPECT_EQ(result.skipped_steps, 2);
  expect_in("step 7 was skipped: the gradient of blocks.0.attn.k_proj.weight is not finite",
            reporter.notices);
  EXPECT_TRUE(std::isnan(reporter.steps[6].loss));
  EXPECT_FALSE(std::isnan(reporter.steps[7].loss));
  Recorder quiet;
  const auto reader = CheckpointReader::open(config.out_dir, quiet, true);
  EXPECT_EQ(reader.state().optimizer_steps, 10);
  EXPECT_EQ(reader.state().skipped_steps, 2);
  EXPECT_EQ(reader.state().tokens, reporter.steps.back().tokens);
}

TEST(Trainer, BadStepsInARowStopTheRunAndSaveNothing) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  Recorder reporter;
  const std::string text = error_of(ErrorKind::non_finite, [&] {
    run(config, reporter, with_bad_gradient([](std::int64_t s) { return s >= 5; }));
  });
  expect_in("stopped at step 8: 3 steps in a row were not finite", text);
  expect_in("step_00000004", text);
  EXPECT_EQ(entries(config.out_dir + "/checkpoints"), std::vector<std::string>{"step_00000004"});
}

TEST(Trainer, TheRowOfBadStepsSurvivesAResume) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  config.save_interval = 1;
  Recorder reporter;
  reporter.after_step = [&](const StepReport& r) {
    if (r.step == 7) request_stop(15);
  };
  TrainContext context = with_bad_gradient([](std::int64_t s) { return s >= 5; });
  {
    const StopScope stop;
    EXPECT_EQ(run(config, reporter, context).signal, 15);
  }
  config.resume = true;
  expect_in("stopped at step 8", error_of(ErrorKind::non_finite, [&] {
              Recorder again;
              run(config, again, with_bad_gradient([](std::int64_t s) { return s >= 5; }));
            }));
}

// --- The step itself

// Micro-batches with 10 and 100 counted targets weigh each target alike: the same gradient as one
// batch of 110, and not the mean of their means.
TEST(TrainStep, AccumulationWeighsTargets) {
  RunConfig config;
  config.model = preset("tiny", Family::llama);
  config.model.block_size = 55;
  config.grad_clip = 0;
  const auto batch_of = [](std::int64_t rows, const std::vector<std::int64_t>& counted,
                           std::int64_t first_row) {
    Batch batch{Tensor::empty({rows, 55}, DType::i32), Tensor::empty({rows, 55}, DType::i32)};
    auto* ids = batch.ids.mutable_data<std::int32_t>();
    auto* targets = batch.targets.mutable_data<std::int32_t>();
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t t = 0; t < 55; ++t) {
        const std::int64_t i = (first_row + r) * 55 + t;
        *ids++ = static_cast<std::int32_t>(i * 37 % 256);
        const bool counts = t < counted[static_cast<std::size_t>(r)];
        *targets++ = counts ? static_cast<std::int32_t>(i * 91 % 256) : kIgnoredTarget;
        batch.counted += counts ? 1 : 0;
      }
    }
    return batch;
  };
  struct Outcome {
    StepResult result;
    std::vector<double> weights;
  };
  const auto step = [&](const std::vector<Batch>& batches) {
    Transformer model(config.model, DType::f64);
    model.initialize(5);
    AdamW optimizer(named_tensors(model), {});
    Outcome outcome{train_step(model, optimizer, config, 0, 1e-3, batches), {}};
    for (const NamedTensor& t : optimizer.tensors()) {
      const auto* data = t.value.data<double>();
      outcome.weights.insert(outcome.weights.end(), data, data + t.value.numel());
    }
    return outcome;
  };
  const Outcome split = step({batch_of(1, {10}, 0), batch_of(2, {50, 50}, 1)});
  const Outcome whole = step({batch_of(3, {10, 50, 50}, 0)});
  EXPECT_EQ(split.result.tokens, 110);
  EXPECT_NEAR(split.result.loss, whole.result.loss, 1e-12);
  EXPECT_NEAR(split.result.grad_norm, whole.result.grad_norm, 1e-12);
  double largest = 0;
  for (std::size_t i = 0; i < whole.weights.size(); ++i) {
    largest = std::max(largest, std::abs(split.weights[i] - whole.weights[i]));
  }
  EXPECT_LT(largest, 1e-8);
  const Outcome small = step({batch_of(1, {10}, 0)});
  const Outcome large = step({batch_of(2, {50, 50}, 1)});
  EXPECT_GT(std::abs((small.result.loss + large.result.loss) / 2 - split.result.loss), 1e-4);
}

TEST(TrainStep, ClippingActsOnTheWholeNorm) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  config.grad_clip = 1e-3;
  Recorder reporter;
  run(config, reporter);
  for (const StepReport& r : reporter.steps) EXPECT_GT(r.grad_norm, 1e-3);  // before clipping
}

TEST(TrainStep, ThePlanIsWhatARunTakes) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  config.eval_interval = 0;
  config.gradient_accumulation_steps = 2;
  Recorder reporter;
  const std::size_t before = allocator(kCpu).stats().allocated;
  allocator(kCpu).reset_peak();
  run(config, reporter);
  EXPECT_EQ(reporter.steps.back().memory_bytes - before, reporter.starts[0].planned_bytes);
}

// --- The best checkpoint (fault 15)

TEST(Trainer, NotANumberIsNeverTheBest) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  Recorder reporter;
  const TrainResult result = run(config, reporter);
  double best = std::numeric_limits<double>::infinity();
  for (const EvalReport& e : reporter.evals) {
    EXPECT_EQ(e.best, e.loss < best);
    best = std::min(best, e.loss);
  }
  EXPECT_EQ(result.best_loss, best);
}

}  // namespace
}  // namespace duet::test
