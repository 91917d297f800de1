// What fits: tight, true, and said where a run does not.
#include "train/profile/fit.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "models/enum_names.h"
#include "models/flops.h"
#include "runtime/allocator.h"
#include "runtime/live_limit.h"
#include "tests/runtime/errors.h"
#include "tests/train/train_support.h"
#include "train/profile/plan.h"
#include "train/text.h"
#include "train/trainer.h"

namespace duet::test {
namespace {

constexpr std::uint64_t kMiB = 1U << 20;

RunConfig tiny() {
  RunConfig run;
  run.model = preset("tiny", Family::llama);
  run.device = "cpu";
  run.threads = 1;
  return run;
}

TEST(Fit, IsTight) {
  for (const std::uint64_t limit : {4 * kMiB, 16 * kMiB, 300 * kMiB}) {
    for (const std::int64_t accumulation : {1, 3}) {
      RunConfig run = tiny();
      run.gradient_accumulation_steps = accumulation;
      const FitResult result = fit(run, {limit});
      EXPECT_TRUE(result.monotone);
      ASSERT_EQ(result.modes.size(), 4U);
      for (const FitOption& option : result.modes) {
        SCOPED_TRACE(fit_flags(option));
        ASSERT_GE(option.batch_size, 1);
        EXPECT_EQ(option.planned_bytes, plan_memory(with_option(run, option)).peak());
        EXPECT_LE(option.planned_bytes, limit);
        FitOption more = option;
        ++more.batch_size;
        EXPECT_GT(plan_memory(with_option(run, more)).peak(), limit);
      }
      // Who recomputes more, fits more.
      EXPECT_GT(result.modes[3].batch_size, result.modes[0].batch_size);
      ASSERT_TRUE(result.same_step.has_value());
      EXPECT_EQ(result.same_step->batch_size * result.same_step->gradient_accumulation_steps,
                run.batch_size * accumulation);
      EXPECT_LE(plan_memory(with_option(run, *result.same_step)).peak(), limit);
    }
  }
}

TEST(Fit, APlanGrowsWithItsBatch) {
  for (const RecomputeMode mode :
       {RecomputeMode::none, RecomputeMode::mlp, RecomputeMode::attn, RecomputeMode::block}) {
    RunConfig run = tiny();
    run.model.recompute = mode;
    std::uint64_t last = 0;
    for (run.batch_size = 1; run.batch_size < 60; ++run.batch_size) {
      const std::uint64_t bytes = plan_memory(run).peak();
      EXPECT_GT(bytes, last) << enum_name(mode) << ", batch " << run.batch_size;
      last = bytes;
    }
  }
}

// The fastest of what fits recomputes nothing while a batch without does; where only a few tokens
// fit at a time, reading the weights for each of them costs more than computing again.
TEST(Fit, PrefersWhatCostsLeast) {
  const FitResult roomy = fit(tiny(), {300 * kMiB});
  ASSERT_TRUE(roomy.fastest.has_value());
  EXPECT_EQ(roomy.fastest->recompute, RecomputeMode::none);
  EXPECT_EQ(roomy.same_step->batch_size, tiny().batch_size);
  RunConfig run = tiny();
  for (const FitOption& option : roomy.modes) {
    EXPECT_DOUBLE_EQ(option.cost, predicted_cost(with_option(run, option)));
    EXPECT_GE(option.cost, roomy.fastest->cost);
  }
  run.batch_size = 1;
  const double one = predicted_cost(run);
  run.batch_size = 2;
  EXPECT_LT(predicted_cost(run), one);
}

TEST(Fit, CountsWhatRunsAgain) {
  ModelConfig model = preset("small", Family::llama);
  const auto again = [&](RecomputeMode mode) {
    model.recompute = mode;
    return recomputed_flops_per_token(model, 256);
  };
  EXPECT_EQ(again(RecomputeMode::none), 0);
  EXPECT_EQ(again(RecomputeMode::mlp), 2.0 * 4 * 3 * 256 * 1024);  // layers x matrices
  EXPECT_EQ(again(RecomputeMode::block), again(RecomputeMode::mlp) + again(RecomputeMode::attn));
  // Forward is a third of the step; the head never runs again.
  EXPECT_DOUBLE_EQ(again(RecomputeMode::block), flops_per_token(model, 256) / 3 - 2.0 * 256 * 256);
}

TEST(Fit, SaysWhereNothingFits) {
  const FitResult result = fit(tiny(), {100'000});
  EXPECT_FALSE(result.fastest.has_value());
  EXPECT_FALSE(result.same_step.has_value());
  for (const FitOption& option : result.modes) {
    EXPECT_EQ(option.batch_size, 0);
    EXPECT_GT(option.planned_bytes, 100'000U);
  }
  expect_in("no batch fits: --batch_size 1 --recompute ", fit_advice(result));
  expect_in(" takes the least (planned ", fit_advice(result));
  EXPECT_EQ(fit_text(result).find("no batch fits"), std::string::npos);  // the refusal says it
  EXPECT_TRUE(nlohmann::json::parse(fit_json(result))["fastest"].is_null());
}

TEST(Fit, IsWrittenForPeopleAndPrograms) {
  const FitResult result = fit(tiny(), {16 * kMiB});
  const auto json = nlohmann::json::parse(fit_json(result));
  EXPECT_EQ(json["limit_bytes"], 16 * kMiB);
  EXPECT_EQ(json["monotone"], true);
  ASSERT_EQ(json["modes"].size(), 4U);
  EXPECT_EQ(json["modes"][1]["recompute"], "mlp");
  EXPECT_EQ(json["modes"][1]["batch_size"], result.modes[1].batch_size);
  EXPECT_EQ(json["fastest"]["relative_time"], 1.0);
  EXPECT_EQ(json["same_step"]["tokens_per_step"], 12 * 64);
  const std::string text = fit_text(result);
  expect_in("16.0 MiB", text);
  expect_in(fit_flags(*result.fastest), text);
  expect_in(fit_flags(*result.same_step), text);
}

TEST(Fit, SizesAreReadAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("16GiB"), std::uint64_t{16} << 30);
  EXPECT_EQ(parse_bytes("900 mib"), 900 * kMiB);
  EXPECT_EQ(parse_bytes("1.5GB"), 1'500'000'000U);
  EXPECT_EQ(parse_bytes("2000000000"), 2'000'000'000U);
  EXPECT_EQ(parse_bytes("512B"), 512U);
  EXPECT_EQ(parse_bytes("0.5KiB"), 512U);
  for (const char* text : {"", "0", "-1GiB", "GiB", "16G", "16GiBs", "1e9", "nan", "inf", "1.2.3MB",
                           "0.0001B", "5000000TiB", "16 GiB x", "16 G iB", "12EiB"}) {
    EXPECT_FALSE(parse_bytes(text).has_value()) << text;
  }
}

// The setting behind "a setting that fits: ", as a user would pass it on.
RunConfig advised(RunConfig run, const std::string& message) {
  const std::string head = "a setting that fits: ";
  const std::size_t begin = message.find(head);
  EXPECT_NE(begin, std::string::npos) << message;
  std::istringstream words(message.substr(begin + head.size()));
  for (std::string flag, value; words >> flag >> value && flag.rfind("--", 0) == 0;) {
    if (flag == "--batch_size") run.batch_size = parse_integer(value).value();
    if (flag == "--gradient_accumulation_steps") {
      run.gradient_accumulation_steps = parse_integer(value).value();
    }
    if (flag == "--recompute") run.model.recompute = enum_from_name<RecomputeMode>(value).value();
  }
  return run;
}

TrainResult run_to_the_end(const RunConfig& run, Recorder& reporter) {
  TrainContext context;
  context.reporter = &reporter;
  return train(run, context);
}

// A limit of exactly what is planned is enough, one byte less is not; and what is advised then
// trains below that limit.
TEST(MemoryLimit, TheAdviceOfARefusedRunIsTrue) {
  const TempDirectory dir;
  RunConfig run = tiny_run(dir);
  run.batch_size = 48;
  run.model.block_size = 32;
  run.model.n_layer = 3;
  run.out_dir = dir.file("unbounded");
  Recorder unbounded;
  EXPECT_EQ(run_to_the_end(run, unbounded).step, 12);
  const std::uint64_t process = unbounded.starts.at(0).process_bytes;

  run.out_dir = dir.file("run");
  run.memory_limit = std::to_string(process - 1);
  Recorder refused;
  const std::string text = error_of(ErrorKind::memory, [&] { run_to_the_end(run, refused); });
  EXPECT_EQ(entries(dir.path()), (std::vector<std::string>{"text", "unbounded"}));
  EXPECT_TRUE(refused.starts.empty());
  expect_in("train: the run does not fit: got ", text);
  expect_in(concat(" (", format_count(static_cast<std::int64_t>(process)),
                   " bytes) planned for the process ("),
            text);  // the limit is one byte lower, and would read alike
  expect_in(": memory_limit;", text);

  const RunConfig other = advised(run, text);
  EXPECT_EQ(other.batch_size * other.gradient_accumulation_steps, 48);
  Recorder reporter;
  EXPECT_EQ(run_to_the_end(other, reporter).step, 12);
  EXPECT_LT(reporter.starts.at(0).process_bytes, process);

  run.memory_limit = std::to_string(process);
  run.out_dir = dir.file("exact");
  const std::size_t room = memory_room(kCpu);
  EXPECT_EQ(run_to_the_end(run, reporter).step, 12);
  EXPECT_GT(memory_room(kCpu), room / 2) << "the limit is lifted when the run ends";
}

TEST(MemoryLimit, EverythingThatFitsRuns) {
  const TempDirectory dir;
  RunConfig run = tiny_run(dir);
  run.max_iters = 2;
  run.eval_interval = 1;
  RunConfig asked = run;
  asked.model.vocab_size = 256;
  const std::uint64_t limit = plan_memory(asked).process.resident + 4 * kMiB;
  const FitResult result = fit(asked, {limit, MemoryMeasure::resident});
  std::vector<FitOption> options = result.modes;
  options.push_back(result.fastest.value());
  options.push_back(result.same_step.value());
  for (const FitOption& option : options) {
    EXPECT_LT(option.process_bytes, limit);
    RunConfig chosen = with_option(run, option);
    chosen.memory_limit = std::to_string(limit);
    chosen.out_dir = dir.file("run" + std::to_string(&option - options.data()));
    Recorder reporter;
    EXPECT_EQ(run_to_the_end(chosen, reporter).step, 2) << fit_flags(option);
  }
}

// A text costs its windows' order and no more.
TEST(MemoryLimit, TheProcessIsPlannedWithItsText) {
  const TempDirectory dir;
  RunConfig run = tiny_run(dir);
  run.model.vocab_size = 256;
  const ProcessBytes small = plan_memory(run).process;
  run.data = dir.file("large");
  write_bytes(run.data, std::string(4'000'000, 'x'));
  const ProcessBytes large = plan_memory(run).process;
  const std::int64_t windows = 3'600'000 / run.model.block_size;  // of the training part
  EXPECT_NEAR(static_cast<double>(large.resident - small.resident),
              4.0 * static_cast<double>(windows), 8'000);
  EXPECT_EQ(large.mapped - small.mapped, large.resident - small.resident);
}

TEST(MemoryLimit, WhatIsNoSizeIsRefused) {
  const TempDirectory dir;
  RunConfig run = tiny_run(dir);
  run.memory_limit = "much";
  Recorder reporter;
  expect_in("memory_limit: got \"much\", expected a size such as 16GiB",
            error_of(ErrorKind::usage, [&] { run_to_the_end(run, reporter); }));
  EXPECT_EQ(entries(dir.path()), std::vector<std::string>{"text"});
}

// Memory that others take while the run is on: the error names what was asked for and a setting
// that trains in what is left; the checkpoint stands, and every byte comes back.
TEST(MemoryLimit, OutOfMemoryInMidRunAdvisesASettingThatRuns) {
  const TempDirectory dir;
  RunConfig run = tiny_run(dir);
  run.batch_size = 48;
  run.model.block_size = 32;
  run.model.n_layer = 3;
  RunConfig planned = run;
  planned.model.vocab_size = 256;
  const std::uint64_t left = plan_memory(planned).peak() * 7 / 10;
  const std::size_t live_before = allocator(kCpu).stats().allocated;
  Recorder reporter;
  TrainContext context;
  context.reporter = &reporter;
  context.hooks.on_phase = [&](StepPhase phase) {
    if (phase == StepPhase::update && reporter.steps.size() == 5) set_live_limit(kCpu, left);
  };
  const std::string text = error_of(ErrorKind::memory, [&] { train(run, context); });
  set_live_limit(kCpu, 0);
  EXPECT_EQ(allocator(kCpu).stats().allocated, live_before);
  EXPECT_EQ(reporter.steps.size(), 6U);
  for (const char* part : {"train: step 7: cpu out of memory: asked for ", " in blocks.", ", op ",
                           "limit of live bytes", " live, ", " cached in pieces of at most ",
                           "saved for backward ", "optimizer ", "the newest checkpoint is ",
                           "checkpoints/step_00000004", "a setting that fits: "}) {
    expect_in(part, text);
  }
  RunConfig smaller = advised(run, text);
  EXPECT_EQ(smaller.batch_size * smaller.gradient_accumulation_steps, 48);
  smaller.resume = true;
  Recorder resumed;
  set_live_limit(kCpu, left);
  EXPECT_EQ(run_to_the_end(smaller, resumed).step, 12);
  set_live_limit(kCpu, 0);
  EXPECT_EQ(resumed.steps.front().step, 5);
}

}  // namespace
}  // namespace duet::test
