// The memory plan: what is walked on meta is what a run takes, to the byte.
#include "train/profile/plan.h"

#include <gtest/gtest.h>

#include <functional>

#include "runtime/cpu/cpu_info.h"
#include "tests/runtime/errors.h"
#include "tests/train/plan_support.h"
#include "tests/train/train_support.h"
#include "train/profile/fit.h"
#include "train/profile/profile.h"
#include "train/run_checks.h"
#include "train/trainer.h"

namespace duet::test {
namespace {

TEST(Plan, OfTinyIsExact) {
  RunConfig run = run_of("tiny", "cpu");
  run.batch_size = 12;
  expect_exact(run, 3);
}

// Of a window that a step takes little time for: the weights are those of the preset.
TEST(Plan, OfSmallIsExact) {
  RunConfig run = run_of("small", "cpu");
  run.batch_size = 1;
  run.model.block_size = 16;
  expect_exact(run, 1);
}

TEST(Plan, OfNanoIsExact) {
  RunConfig run = run_of("nano", "cpu");
  run.batch_size = 2;
  expect_exact(run, 1);
}

// Minutes long: run nightly (CMakeLists.txt), not with the others.
TEST(LargePlan, OfSmallWithItsWindowIsExact) {
  RunConfig run = run_of("small", "cpu");
  run.batch_size = 1;
  expect_exact(run, 1);
}

TEST(LargePlan, OfNanoWithItsWindowIsExact) {
  RunConfig run = run_of("nano", "cpu");
  run.batch_size = 12;
  expect_exact(run, 1);
}

TEST(LargePlan, Of60mIsExact) {
  RunConfig run = run_of("60m", "cpu");
  run.batch_size = 1;
  run.model.block_size = 32;
  expect_exact(run, 1);
}

// What the presets have not.
TEST(Plan, OfOtherModelsIsExact) {
  const RunConfig tiny = run_of("tiny", "cpu");
  const auto exact = [&](const char* what, auto&& change) {
    RunConfig run = tiny;
    run.batch_size = 5;
    change(run);
    for (const RecomputeMode recompute : kRecomputeModes) {
      run.model.recompute = recompute;
      EXPECT_EQ(plan_memory(run).step, measured(run, 2))
          << what << ", recompute " << enum_name(run.model.recompute);
    }
  };
  exact("dropout", [](RunConfig& r) { r.model.dropout = 0.1; });
  exact("shared key heads", [](RunConfig& r) { r.model.n_kv_head = 1; });
  exact("diff", [](RunConfig& r) { r.model.scoring = Scoring::diff; });
  exact("diff_v2", [](RunConfig& r) { r.model.scoring = Scoring::diff_v2; });
  exact("one net for all", [](RunConfig& r) { r.model.coupling_sharing = CouplingSharing::model; });
  exact("one net a layer", [](RunConfig& r) { r.model.coupling_sharing = CouplingSharing::layer; });
  exact("some layers couple", [](RunConfig& r) { r.model.coupling_layers = {1}; });
  exact("run back", [](RunConfig& r) {
    r.model.coupling = CouplingKind::leapfrog;
    r.model.coupling_run_back = true;
  });
  exact("a vocabulary that does not fit a chunk", [](RunConfig& r) { r.model.vocab_size = 9'001; });
  exact("GELU", [](RunConfig& r) { r.model.activation = Activation::gelu; });
}

// From the first weight to the last evaluation.
TEST(Plan, OfAWholeRunIsExact) {
  const auto exact = [](const char* what, bool by_evaluation, auto&& change) {
    SCOPED_TRACE(what);
    const TempDirectory dir;
    RunConfig run = tiny_run(dir);
    run.max_iters = 4;
    run.diagnostics = 0;
    change(run);
    Recorder reporter;
    TrainContext context;
    context.reporter = &reporter;
    context.diagnostics_share = 1e9;  // always
    Allocator& memory = allocator(kCpu);
    const std::size_t before = memory.stats().allocated;
    memory.reset_peak();
    train(run, context);
    EXPECT_EQ(memory.stats().allocated, before);
    ASSERT_EQ(reporter.starts.size(), 1U);
    EXPECT_EQ(reporter.starts[0].planned_bytes, memory.stats().peak_allocated - before);
    run.model = reporter.starts[0].model;
    const MemoryPlan plan = plan_memory(run);
    EXPECT_EQ(plan.peak(), reporter.starts[0].planned_bytes);
    EXPECT_EQ(plan.evaluation > plan.step, by_evaluation);
  };
  exact("plain", false, [](RunConfig&) {});
  exact("padding", false, [](RunConfig& r) { r.model.vocab_size = 300; });
  exact("float64", false, [](RunConfig& r) { r.dtype = "float64"; });
  exact("recall", false, [](RunConfig& r) {
    r.task = TaskKind::mqar;
    r.mqar_pairs = 2;
    r.model.vocab_size = 256;
  });
  // The diagnostics of one sequence keep what recompute does not.
  exact("measured by its diagnostics", true, [](RunConfig& r) {
    write_bytes(r.data, std::string(8000, 'x'));
    r.diagnostics = 2;
    r.batch_size = 1;
    r.model.recompute = RecomputeMode::block;
    r.model.n_layer = 12;
    r.model.block_size = 256;
    r.model.d_ff = 4;
    r.model.n_head = 1;
    r.model.coupling = CouplingKind::none;
  });
}

TEST(Plan, TakesNothingAndLeavesNothing) {
  const RunConfig run = run_of("small", "cpu");
  const MemoryStats cpu = allocator(kCpu).stats();
  const std::size_t live = allocator(kMeta).stats().allocated;
  EXPECT_GT(plan_memory(run).step, 4U << 20);
  EXPECT_EQ(allocator(kCpu).stats().allocations, cpu.allocations);
  EXPECT_EQ(allocator(kMeta).stats().allocated, live);
}

// What cannot run here: weights, gradients and activations of two bytes, float32 moments and master
// weights.
TEST(Plan, AnswersForBfloat16) {
  RunConfig run = run_of("455m", "cpu");
  run.batch_size = 64;
  run.model.block_size = 1024;
  run.dtype = "bfloat16";
  const std::uint64_t half = plan_memory(run).step;
  run.batch_size = 1;
  run.model.block_size = 1;
  Transformer model(run.model, DType::bf16, kMeta);
  const auto n = static_cast<std::uint64_t>(count_parameters(model));
  const std::uint64_t state = plan_memory(run).step;
  EXPECT_GE(state, 16 * n);
  EXPECT_LT(state, 17 * n);
  EXPECT_GT(half, 5 * state);
  run.dtype = "float32";
  const std::uint64_t in_float32 = plan_memory(run).step;
  EXPECT_GE(in_float32, 16 * n);
  EXPECT_LT(in_float32, 17 * n);
  run.dtype = "int8";
  expect_in("dtype: got \"int8\"", error_of(ErrorKind::usage, [&] { plan_memory(run); }));
}

// An accumulation of many micro-batches is not walked one by one.
TEST(Plan, OfManyMicroBatchesIsQuick) {
  RunConfig run = run_of("tiny", "cpu");
  run.batch_size = 1;
  run.gradient_accumulation_steps = 3;
  const std::uint64_t three = plan_memory(run).step;
  run.gradient_accumulation_steps = 65'536;
  const std::uint64_t bytes_of_a_batch = 2 * 512;  // ids and targets of 64 tokens each
  EXPECT_EQ(plan_memory(run).step, three + 65'533 * bytes_of_a_batch);
}

// The scratch and the limits of cuda, whatever this build or machine has: a test on the GPU
// compares it with what a run takes (plan_cuda_test.cpp).
TEST(Plan, ForCudaNeedsNeitherGpuNorBuild) {
  RunConfig run = run_of("tiny", "cuda");
  run.model.vocab_size = 4096;
  const MemoryPlan cuda = plan_memory(run);
  const Profile profile = plan_profile(run);
  EXPECT_EQ(profile.peak_bytes, cuda.step);
  expect_in("planned for cuda, nothing was run", profile_text(profile, 0));
  expect_in("\"device\":\"cuda\"", profile_json(profile));
  const FitResult fits = fit(run, {1U << 24});
  expect_in("16,777,216 bytes) of cuda, with", fit_text(fits));
  EXPECT_EQ(fits.device, kMetaCuda);
  run.device = "cpu";
  EXPECT_LT(plan_memory(run).step, cuda.step);  // whose head takes more rows at a time
  const std::string here = profile_text(plan_profile(run), 0);
  expect_in("planned for cpu (oneDNN " + cpu_info().onednn_version + " on " + cpu_info().onednn_isa,
            here);
  expect_in("), nothing was run", here);
  run.device = "gpu";
  error_of(ErrorKind::usage, [&] { plan_memory(run); });
}

TEST(Plan, ForCudaRefusesWhatCudaDoes) {
  const auto refused = [](auto&& change, const std::string& words) {
    RunConfig run = run_of("tiny", "cuda");
    run.batch_size = 1;
    run.model.n_layer = 1;
    change(run);
    validate(run.model);
    for (const auto& walk : {std::function<void()>([&] { plan_profile(run); }),
                             std::function<void()>([&] { fit(run, {1U << 30}); })}) {
      expect_in(words, error_of(ErrorKind::usage, walk));
    }
    run.device = "cpu";
    EXPECT_GT(plan_memory(run).step, 0U);
    check_kernels(run.model, kCpu);
  };
  refused([](RunConfig& r) { r.dtype = "float64"; },
          "dtype: float64 has no kernels on CUDA: got --dtype float64, expected float32");
  refused(
      [](RunConfig& r) {
        r.model.n_head = 1;
        r.model.n_embd = 512;
        r.model.coupling = CouplingKind::none;
      },
      "attention: head width is too large for cuda: got 512, expected <= 256");
  refused(
      [](RunConfig& r) {
        r.model.n_head = 1;
        r.model.n_embd = 256;
        r.model.coupling = CouplingKind::leapfrog;
      },
      "coupling_leapfrog: head width is too large for cuda: got 256, expected <= 128");
  refused(
      [](RunConfig& r) {
        r.model.coupling = CouplingKind::affine;
        r.model.coupling_hidden = 129;
      },
      "coupling_affine: hidden width is too large for cuda: got 129, expected <= 128");
}

}  // namespace
}  // namespace duet::test
