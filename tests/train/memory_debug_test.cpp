// alloc_poison and alloc_trace in a training run, and the kept traces as tests of the memory
// policy. The traces come from the disabled tests below, each run by itself (a fresh process):
//
//   train_tests --gtest_also_run_disabled_tests --gtest_filter=KeptTraces.DISABLED_RecordLlama
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <random>

#include "models/transformer.h"
#include "runtime/memory_trace.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/same_text.h"
#include "tests/train/train_support.h"
#include "train/trainer.h"

namespace duet::test {
namespace {

// Losses, norms and validation losses of a run, as bits.
std::vector<std::uint64_t> figures_of(RunConfig config) {
  Recorder recorder;
  TrainContext context;
  context.reporter = &recorder;
  train(config, context);
  std::vector<std::uint64_t> bits;
  for (const StepReport& step : recorder.steps) {
    EXPECT_TRUE(std::isfinite(step.loss));
    EXPECT_GE(step.seconds, 0);
    bits.push_back(std::bit_cast<std::uint64_t>(step.loss));
    bits.push_back(std::bit_cast<std::uint64_t>(step.grad_norm));
  }
  for (const EvalReport& eval : recorder.evals) {
    bits.push_back(std::bit_cast<std::uint64_t>(eval.loss));
  }
  return bits;
}

// Nothing in a run reads memory that was not written: poison changes no bit.
TEST(AllocPoison, ChangesNoBitOfARun) {
  struct Row {
    const char* name;
    void (*change)(RunConfig&);
  };
  const Row rows[] = {
      {"llama", [](RunConfig&) {}},
      {"euler", [](RunConfig& c) { c.model.coupling = CouplingKind::euler; }},
      {"symplectic, run back",
       [](RunConfig& c) {
         c.model.coupling = CouplingKind::symplectic_euler;
         c.model.coupling_run_back = true;
       }},
      {"differential", [](RunConfig& c) { c.model.scoring = Scoring::diff; }},
      {"gpt2",
       [](RunConfig& c) {
         const ModelConfig small = c.model;
         c.model = family_defaults(Family::gpt2);
         c.model.n_layer = 2;
         c.model.n_head = small.n_head;
         c.model.n_embd = small.n_embd;
         c.model.d_ff = small.d_ff;
         c.model.block_size = small.block_size;
         c.model.vocab_size = 0;
         c.model.dropout = 0.1;
         c.model.recompute = RecomputeMode::block;
         c.gradient_accumulation_steps = 2;
       }},
      {"mqar",
       [](RunConfig& c) {
         c.data.clear();
         c.task = TaskKind::mqar;
         c.mqar_pairs = 2;
         c.model.block_size = 16;
         c.tokenizer = "byte";
       }},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    std::vector<std::uint64_t> bits[2];
    for (const bool poison : {false, true}) {
      const TempDirectory dir;
      RunConfig config = tiny_run(dir);
      row.change(config);
      config.alloc_poison = poison;
      const double before = allocator(kCpu).stats().poison_seconds;
      bits[poison ? 1 : 0] = figures_of(config);
      EXPECT_EQ(allocator(kCpu).stats().poison_seconds > before, poison);
    }
    EXPECT_GE(bits[0].size(), 24U);
    EXPECT_EQ(bits[0], bits[1]);
  }
}

TEST(AllocTrace, ARunWritesATraceThatReplays) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  config.alloc_trace = dir.file("run/memory.trace");  // in the directory that the run makes
  const std::vector<std::uint64_t> traced = figures_of(config);
  const TraceReplay r = replay_trace(config.alloc_trace);
  ASSERT_TRUE(r.recorded);
  EXPECT_GT(r.figures.events, 1000U);
  EXPECT_EQ(r.recorded->peak_allocated, r.figures.peak_allocated);
  std::size_t of_layer = 0, sum = 0;
  for (const MemoryOwner& owner : r.owners) {
    sum += owner.bytes;
    if (owner.path.starts_with("blocks.0.")) of_layer += owner.bytes;
  }
  EXPECT_EQ(sum, r.figures.peak_allocated);
  EXPECT_GT(of_layer, 0U);
  config.alloc_trace.clear();
  config.out_dir = dir.file("plain");
  EXPECT_EQ(figures_of(config), traced);
}

TEST(AllocTrace, APathThatCannotBeWrittenStopsTheRunBeforeItBegins) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  const auto before = snapshot(dir.path());
  config.alloc_trace = dir.file("none/memory.trace");
  expect_in("none/memory.trace: cannot open for writing",
            error_of(ErrorKind::io, [&] { train(config); }));
  EXPECT_TRUE(same_files(snapshot(dir.path()), before));
  config.alloc_trace = config.data;
  expect_in("the file holds something else", error_of(ErrorKind::usage, [&] { train(config); }));
  EXPECT_TRUE(same_files(snapshot(dir.path()), before));
}

// Traces of real steps, kept: what the policy makes of them is known to the byte.
struct KeptTrace {
  const char* name;
  std::size_t peak_allocated, peak_reserved, reserved_at_peak;
  std::uint64_t raw_allocations;
};
constexpr KeptTrace kKept[] = {
    {"llama", 14'384'640, 18'874'368, 18'874'368, 9},
    {"gpt2_recompute", 9'765'376, 14'680'064, 12'582'912, 7},
    {"alternating", 24'853'504, 29'360'128, 29'360'128, 11},
};

std::string kept_path(const std::string& name) {
  return std::string(DUET_SOURCE_DIR) + "/tests/golden/traces/" + name + ".trace";
}

TEST(KeptTraces, ReplayToTheByte) {
  for (const KeptTrace& kept : kKept) {
    SCOPED_TRACE(kept.name);
    const TraceReplay r = replay_trace(kept_path(kept.name));
    EXPECT_EQ(r.figures.peak_allocated, kept.peak_allocated);
    EXPECT_EQ(r.figures.peak_reserved, kept.peak_reserved);
    EXPECT_EQ(r.figures.reserved_at_peak, kept.reserved_at_peak);
    EXPECT_EQ(r.figures.raw_allocations, kept.raw_allocations);
    ASSERT_TRUE(r.recorded);
    EXPECT_EQ(r.recorded->peak_allocated, kept.peak_allocated);
    EXPECT_GT(r.owners.size(), 5U);
  }
}

// Steps of [batch, t] for every t, on meta.
void record(const std::string& name, const ModelConfig& shape, const RunConfig& config,
            const std::vector<std::int64_t>& lengths) {
  AllocatorTrace trace(kept_path(name), allocator(kMeta));
  {
    Transformer model(shape, DType::f32, kMeta);
    AdamW optimizer(named_tensors(model), {});
    for (const std::int64_t t : lengths) {
      std::vector<Batch> batches;
      for (std::int64_t i = 0; i < config.gradient_accumulation_steps; ++i) {
        const Shape ids{config.batch_size, t};
        batches.push_back({Tensor::empty(ids, DType::i32, kMeta),
                           Tensor::empty(ids, DType::i32, kMeta), ids.numel()});
      }
      train_step(model, optimizer, config, 0, config.learning_rate, batches);
    }
  }
  trace.finish();
}

ModelConfig small_model(Family family, std::int64_t block_size) {
  ModelConfig model = family_defaults(family);
  model.n_layer = 2;
  model.n_head = 4;
  model.n_embd = 128;
  model.d_ff = 256;
  model.block_size = block_size;
  model.vocab_size = 256;
  return model;
}

TEST(KeptTraces, DISABLED_RecordLlama) {
  RunConfig config;
  config.batch_size = 4;
  ModelConfig model = small_model(Family::llama, 128);
  model.coupling = CouplingKind::euler;
  record("llama", model, config, {128, 128});
}

TEST(KeptTraces, DISABLED_RecordGpt2) {
  RunConfig config;
  config.batch_size = 4;
  config.gradient_accumulation_steps = 2;
  ModelConfig model = small_model(Family::gpt2, 128);
  model.recompute = RecomputeMode::block;
  model.dropout = 0.1;
  record("gpt2_recompute", model, config, {128, 128});
}

TEST(KeptTraces, DISABLED_RecordAlternating) {
  RunConfig config;
  config.batch_size = 2;
  std::mt19937 random(7);
  std::vector<std::int64_t> lengths;
  for (int round = 0; round < 4; ++round) {
    lengths.push_back(1024);
    lengths.push_back(137 + static_cast<std::int64_t>(random() % 864));
  }
  ModelConfig model = small_model(Family::llama, 1024);
  model.n_layer = 1;
  record("alternating", model, config, lengths);
}

}  // namespace
}  // namespace duet::test
