// What is said of a step that was not finite: which op made the first bad number, and with
// trace_nonfinite, before a loss shows it.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "runtime/allocator.h"
#include "tests/runtime/errors.h"
#include "tests/train/nonfinite_support.h"
#include "tests/train/train_support.h"

namespace duet::test {
namespace {

struct Row {
  const char* name;
  std::function<void(ModelConfig&)> change;
  Family family = Family::llama;
  std::int64_t micro_batches = 1;
};

std::vector<Row> rows() {
  std::vector<Row> out = {
      {"llama", [](ModelConfig& c) { c.coupling = CouplingKind::none; }},
      {"llama, biases, gelu",
       [](ModelConfig& c) {
         c.bias = true;
         c.activation = Activation::gelu;
       }},
      {"gpt2", [](ModelConfig& c) { c.coupling = CouplingKind::none; }, Family::gpt2},
      {"gpt2, coupled, erf", [](ModelConfig& c) { c.activation = Activation::gelu; }, Family::gpt2},
      {"diff", [](ModelConfig& c) { c.scoring = Scoring::diff; }},
      {"diff_v2", [](ModelConfig& c) { c.scoring = Scoring::diff_v2; }},
      {"softplus dt, run back",
       [](ModelConfig& c) {
         c.coupling = CouplingKind::symplectic_euler;
         c.coupling_run_back = true;
         c.coupling_dt_mode = CouplingDtMode::softplus;
       }},
      {"dropout, accumulation", [](ModelConfig& c) { c.dropout = 0.1; }, Family::gpt2, 2},
      {"recompute block, accumulation", [](ModelConfig& c) { c.recompute = RecomputeMode::block; },
       Family::llama, 2},
      {"recompute mlp", [](ModelConfig& c) { c.recompute = RecomputeMode::mlp; }},
      {"recompute attn", [](ModelConfig& c) { c.recompute = RecomputeMode::attn; }},
      {"padded vocabulary",
       [](ModelConfig& c) {
         c.vocab_size = 16;
         c.valid_vocab = 13;
       }},
  };
  for (const CouplingKind kind : kCouplings) {
    out.push_back({"a coupling", [kind](ModelConfig& c) { c.coupling = kind; }});
  }
  return out;
}

TinyStep step_of(const Row& row) {
  ModelConfig model = micro(row.family);
  row.change(model);
  return TinyStep(model, kCpu, row.micro_batches);
}

TEST(NonFiniteReplay, BlamesEveryOpForItsOwnNaN) {
  std::set<std::string> ops;
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    TinyStep tiny = step_of(row);
    ops.merge(expect_every_op_is_blamed(tiny));
    if (testing::Test::HasFailure()) return;
  }
  for (const char* op : {"linear", "swiglu", "gelu", "linear_gelu_tanh", "attention", "rope",
                         "rms_norm", "add_rms_norm", "layer_norm", "embedding", "dropout",
                         "linear_cross_entropy", "diff_combine", "recompute", "accumulate_grad"}) {
    EXPECT_EQ(ops.count(op), 1U) << op;
  }
}

// A weight of every kind of module.
TEST(NonFiniteReplay, NamesWeightsThatWereBadBefore) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    TinyStep tiny = step_of(row);
    for (const NamedTensor& t : tiny.optimizer->tensors()) {
      const std::int64_t last = t.value.numel() - 1;
      const double before = values(t.value).back();
      plant(t.value, kNaN, last);
      const StepResult result = tiny.run();
      plant(t.value, before, last);
      if (!result.skipped) continue;  // a padded row, read by nobody
      EXPECT_EQ(
          result.reason.rfind(
              concat("weights were not finite before the step: ", t.name, ": 1 of ", last + 1), 0),
          0U)
          << result.reason;
    }
  }
}

TEST(NonFiniteReplay, AnOverflowInTheMlpIsTheMlps) {
  TinyStep tiny(micro(Family::llama, CouplingKind::none));
  for (const char* name : {"blocks.1.mlp.gate_proj.weight", "blocks.1.mlp.up_proj.weight"}) {
    Tensor w = tiny.weight(name);
    fill(w, 3e38);
  }
  const StepResult result = tiny.run();
  ASSERT_TRUE(result.skipped);
  EXPECT_EQ(
      result.reason.rfind("linear in blocks.1.mlp gave a result that is not finite (forward: ", 0),
      0U)
      << result.reason;
  expect_in("blocks.1.mlp.gate_proj.weight/up_proj.weight [48, 16] up to 3e+38", result.reason);
  EXPECT_EQ(result.reason.find("embedding.weight"), std::string::npos) << result.reason;
  expect_in("; loss nan", result.reason);  // whatever the sign of that NaN
  EXPECT_EQ(result.reason.find("-nan"), std::string::npos) << result.reason;
}

// Nothing is wrong in forward: the MLP's hidden layer is 0. Its gradient is a sum over 3e38.
TEST(NonFiniteReplay, AnOverflowInBackwardSaysSo) {
  TinyStep tiny(micro(Family::gpt2, CouplingKind::none));
  Tensor up = tiny.weight("blocks.1.mlp.up_proj.weight");
  Tensor bias = tiny.weight("blocks.1.mlp.up_proj.bias");
  Tensor down = tiny.weight("blocks.1.mlp.down_proj.weight");
  fill(up, 0);
  fill(bias, 0);
  fill(down, 3e38);
  Tensor gain = tiny.weight("final_norm.weight");
  fill(gain, 1000);
  const StepResult result = tiny.run();
  ASSERT_TRUE(result.skipped);
  EXPECT_EQ(result.reason.rfind("linear in blocks.1.mlp.down_proj gave a gradient that is not "
                                "finite (backward: of input 0, ",
                                0),
            0U)
      << result.reason;
  expect_in(
      "inputs in forward: [2, 6, 24] up to 0, blocks.1.mlp.down_proj.weight [16, 24] up to "
      "3e+38",
      result.reason);
}

TEST(NonFiniteReplay, AnOverflowedScoreIsTheAttentions) {
  for (const Family family : {Family::llama, Family::gpt2}) {
    TinyStep tiny(micro(family, CouplingKind::none));
    for (const char* name : {"blocks.0.attn.q_proj.weight", "blocks.0.attn.k_proj.weight"}) {
      Tensor w = tiny.weight(name);
      fill(w, 1e22);
    }
    const StepResult result = tiny.run();
    ASSERT_TRUE(result.skipped);
    EXPECT_EQ(result.reason.rfind("attention in blocks.0.attn gave a result that is not finite "
                                  "(forward: ",
                                  0),
              0U)
        << result.reason;
    expect_in("e+2", result.reason);  // the inputs are large, and finite
  }
}

TEST(NonFiniteReplay, NamesTheMicroBatch) {
  ModelConfig model = micro(Family::gpt2, CouplingKind::none);
  TinyStep tiny(model, kCpu, 2);
  // Positions that only the second micro-batch has.
  Tensor positions = tiny.weight("positions.weight");
  const Batch longer{make_ids(2, 8, 13, 8), make_ids(2, 8, 13, 9), 16};
  tiny.batches[1] = longer;
  for (std::int64_t i = 6 * 16; i < 8 * 16; ++i) plant(positions, i % 2 == 0 ? 3e38 : -3e38, i);
  Tensor up = tiny.weight("blocks.0.attn.v_proj.weight");
  fill(up, 3e38);
  const StepResult result = tiny.run();
  ASSERT_TRUE(result.skipped);
  expect_in("micro-batch ", result.reason);
  expect_in(" of 2: ", result.reason);
}

StepHooks spoil(const std::string& name, double value) {
  StepHooks hooks;
  hooks.after_backward = [=](std::int64_t, const std::vector<NamedTensor>& tensors) {
    for (const NamedTensor& t : tensors) {
      if (t.name == name) plant(t.gradient(), value, 3);
    }
  };
  return hooks;
}

TEST(NonFiniteReplay, AHookIsNotAnOp) {
  TinyStep tiny(micro(Family::llama));
  const StepResult result = tiny.run(nullptr, spoil("blocks.1.mlp.down_proj.weight", kNaN));
  ASSERT_TRUE(result.skipped);
  EXPECT_EQ(result.reason.rfind("the gradient of blocks.1.mlp.down_proj.weight is not finite (1 of "
                                "384 elements is not finite, nan, at [0, 3])",
                                0),
            0U)
      << result.reason;
  expect_in("a hook changed it after backward", result.reason);
}

TEST(NonFiniteReplay, ALargeGradientIsFinite) {
  TinyStep tiny(micro(Family::llama));
  tiny.config.grad_clip = 0;
  const StepResult result = tiny.run(nullptr, spoil("blocks.1.mlp.down_proj.weight", 1e25));
  ASSERT_TRUE(result.skipped);
  EXPECT_EQ(result.reason.rfind("the gradient of blocks.1.mlp.down_proj.weight is too large: its "
                                "largest element is 1e+25",
                                0),
            0U)
      << result.reason;
}

// A fault that does not come again, as of memory that flips a bit.
TEST(NonFiniteReplay, SaysWhenNothingIsFoundAgain) {
  TinyStep tiny(micro(Family::llama));
  Planter once(5, 1'000'000);
  const OpWatchScope watching(once);
  const StepResult result = tiny.run();
  ASSERT_TRUE(result.skipped);
  expect_in("when the step was run again every op gave finite numbers", result.reason);
}

TEST(NonFiniteReplay, IgnoredTargetsAreFinite) {
  TinyStep tiny(micro(Family::llama));
  fill(tiny.batches[0].targets, kIgnoredTarget);
  tiny.batches[0].counted = 0;
  NonFiniteTrace all(TraceNonfinite::all);
  const StepResult result = tiny.run(&all);
  EXPECT_FALSE(result.skipped) << result.reason;
  EXPECT_EQ(result.loss, 0);
  EXPECT_EQ(all.take_warnings(), std::vector<std::string>{});
}

// A replayed step leaves no gradient, and the next one has the bits that it had without.
TEST(NonFiniteReplay, ChangesNoBit) {
  const auto weights_after = [](bool spoiled) {
    ModelConfig model = micro(Family::llama);
    model.dropout = 0.1;
    TinyStep tiny(model, kCpu, 2);
    tiny.run();
    if (spoiled) {
      EXPECT_TRUE(tiny.run(nullptr, spoil("final_norm.weight", kNaN)).skipped);
    } else {
      ++tiny.step;
    }
    tiny.run();
    std::vector<double> out;
    for (const NamedTensor& t : tiny.optimizer->tensors()) {
      const std::vector<double> w = values(t.value);
      out.insert(out.end(), w.begin(), w.end());
    }
    return out;
  };
  EXPECT_EQ(weights_after(false), weights_after(true));
}

// --- trace_nonfinite

// Checks change no bit and take no memory, and a healthy run gives no warning, poisoned memory or
// not.
TEST(NonFiniteTrace, ChecksAreFreeOfEffects) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    const auto figures = [&](TraceNonfinite mode) {
      const PoisonScope poison(allocator(kCpu), true);
      TinyStep tiny = step_of(row);
      NonFiniteTrace trace(mode);
      allocator(kCpu).reset_peak();
      const std::size_t before = allocator(kCpu).stats().allocated;
      std::vector<double> out;
      for (int i = 0; i < 3; ++i) out.push_back(tiny.run(&trace).loss);
      out.push_back(static_cast<double>(allocator(kCpu).stats().peak_allocated - before));
      for (const NamedTensor& t : tiny.optimizer->tensors()) out.push_back(max_abs(t.value));
      EXPECT_EQ(trace.take_warnings(), std::vector<std::string>{});
      return out;
    };
    const std::vector<double> off = figures(TraceNonfinite::off);
    EXPECT_EQ(figures(TraceNonfinite::sample), off);
    EXPECT_EQ(figures(TraceNonfinite::all), off);
  }
}

// The loss is finite: a norm divides the size out again.
void enlarge(Tensor w) {
  fill(w, 0);
  for (std::int64_t i = 0; i < 16; ++i) plant(w, i % 2 == 0 ? 1e22 : -1e21, 16 * i);
}
constexpr const char* kLarge = "forward linear in blocks.0.attn.o_proj gave numbers up to ";

TEST(NonFiniteTrace, AllWarnsBeforeTheLossShowsIt) {
  TinyStep tiny(micro(Family::llama, CouplingKind::none));
  enlarge(tiny.weight("blocks.0.attn.o_proj.weight"));
  NonFiniteTrace all(TraceNonfinite::all);
  const StepResult result = tiny.run(&all);
  EXPECT_FALSE(result.skipped) << result.reason;
  const std::vector<std::string> warnings = all.take_warnings();
  ASSERT_FALSE(warnings.empty());
  EXPECT_EQ(warnings[0].rfind(kLarge, 0), 0U) << warnings[0];
  tiny.run(&all);
  EXPECT_EQ(all.take_warnings(), std::vector<std::string>{}) << "a place is warned of once";
}

TEST(NonFiniteTrace, AllNamesTheUpdateThatSpoilsAWeight) {
  TinyStep tiny(micro(Family::llama));
  NonFiniteTrace all(TraceNonfinite::all);
  EXPECT_FALSE(tiny.run(&all, {}, 1e39).skipped);
  const std::vector<std::string> warnings = all.take_warnings();
  ASSERT_FALSE(warnings.empty());
  expect_in("the update made embedding.weight not finite: ", warnings[0]);
}

// A skipped step is explained once, by its replay.
TEST(NonFiniteTrace, LeavesASkippedStepToItsReplay) {
  TinyStep tiny(micro(Family::llama));
  fill(*std::make_unique<Tensor>(tiny.weight("blocks.0.mlp.up_proj.weight")), 3e38);
  NonFiniteTrace all(TraceNonfinite::all);
  EXPECT_TRUE(tiny.run(&all).skipped);
  EXPECT_EQ(all.take_warnings(), std::vector<std::string>{});
}

// On a clock that the test moves: a pass forward or backward takes 0.3 s, a look 1 ms, so that a
// step pays for six looks.
TEST(NonFiniteTrace, SampleTakesAHundredthAndSeesEverything) {
  TinyStep tiny(micro(Family::llama, CouplingKind::none));
  enlarge(tiny.weight("blocks.0.attn.o_proj.weight"));
  double now = 0;
  StepHooks hooks;
  hooks.on_phase = [&](StepPhase phase) { now += phase == StepPhase::update ? 0 : 0.3; };
  NonFiniteTrace sample(TraceNonfinite::sample, [&] { return now += 1e-3; });
  std::vector<std::string> warnings;
  std::int64_t steps = 0;
  for (; steps < 100 && warnings.empty(); ++steps) {
    EXPECT_FALSE(tiny.run(&sample, hooks).skipped);
    EXPECT_LE(sample.share(), 0.013) << "after step " << steps;  // one look more at most
    warnings = sample.take_warnings();
  }
  ASSERT_FALSE(warnings.empty());
  EXPECT_EQ(warnings[0].rfind(kLarge, 0), 0U) << warnings[0];
  EXPECT_GT(steps, 1);

  // A weight that no op reads any more stands last in the turn.
  now = 0;
  NonFiniteTrace weights(TraceNonfinite::sample, [&] { return now += 1e-3; });
  TinyStep healthy(micro(Family::llama, CouplingKind::none));
  healthy.run(&weights, hooks);
  const auto spoil_last = [&](std::int64_t, const std::vector<NamedTensor>& tensors) {
    fill(const_cast<Tensor&>(tensors.back().value), kNaN);
  };
  StepHooks late = hooks;
  late.after_backward = spoil_last;
  bool warned = false;
  for (int i = 0; i < 200 && !warned; ++i) {
    healthy.model.initialize(3);
    healthy.run(&weights, late);
    for (const std::string& text : weights.take_warnings()) {
      warned = warned || text.find("the update made final_norm.weight not finite") == 0;
    }
  }
  EXPECT_TRUE(warned);
  EXPECT_LE(weights.share(), 0.013);
}

// --- In a run

TEST(Trainer, ARunWarnsOfWhatAllSees) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  config.max_iters = 6;
  config.model.coupling = CouplingKind::none;
  Recorder reporter;
  TrainContext context;
  context.reporter = &reporter;
  context.hooks.after_backward = [](std::int64_t step, const std::vector<NamedTensor>& tensors) {
    for (const NamedTensor& t : tensors) {
      if (step == 2 && t.name == "blocks.0.attn.o_proj.weight") enlarge(t.value);
    }
  };
  train(config, context);
  EXPECT_EQ(reporter.notices, "");
  config.trace_nonfinite = TraceNonfinite::all;
  config.out_dir = dir.file("watched");
  train(config, context);
  expect_in(std::string("step 4: ") + kLarge, reporter.notices);
  expect_in("lower learning_rate", reporter.notices);
}

TEST(TensorFacts, OfAnyTypeAndStride) {
  Tensor x = tensor_of({1, -2, kNaN, 4, -INFINITY, 6}, DType::f32, {2, 3});
  EXPECT_EQ(words_of(facts_of(x)), "2 of 6 elements are not finite, the first, nan, at [0, 2]");
  EXPECT_EQ(facts_of(x).largest, 6);
  const TensorFacts turned = facts_of(x.transpose_view(0, 1));
  EXPECT_EQ(words_of(turned), "2 of 6 elements are not finite, the first, -inf, at [1, 1]");
  EXPECT_TRUE(facts_of(x.slice_view(1, 0, 1)).finite());
  EXPECT_EQ(facts_of(x.slice_view(1, 0, 1)).largest, 4);
  EXPECT_EQ(facts_of(tensor_of({-3, 1}, DType::f64)).largest, 3);
  Tensor half = Tensor::full({4}, -2, DType::bf16);
  EXPECT_EQ(facts_of(half).largest, 2);
  half.mutable_data<BFloat16>()[1] = BFloat16(INFINITY);
  EXPECT_EQ(words_of(facts_of(half)), "1 of 4 elements is not finite, inf, at [1]");
  EXPECT_EQ(facts_of(Tensor::full({3}, -7, DType::i32)).largest, 7);
  EXPECT_TRUE(facts_of(Tensor::empty({0}, DType::f32)).finite());
  Tensor large = Tensor::full({300'000}, 1, DType::f32);  // over several threads
  large.mutable_data<float>()[299'999] = -std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(words_of(facts_of(large)), "1 of 300000 elements is not finite, nan, at [299999]");
  EXPECT_EQ(short_number(-kNaN), "nan");
}

}  // namespace
}  // namespace duet::test
