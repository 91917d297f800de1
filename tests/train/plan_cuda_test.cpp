// Plans for cuda: what is walked on meta is what the GPU takes, to the byte.
#include <gtest/gtest.h>

#include "tests/runtime/cuda_support.h"
#include "tests/runtime/errors.h"
#include "tests/train/plan_support.h"
#include "tests/train/train_support.h"
#include "train/profile/profile.h"
#include "train/trainer.h"

namespace duet::test {
namespace {

// Of sizes that a simulated step takes little time for, with more rows than one block of a norm
// takes and more ids than one part of the embedding.
RunConfig little_run() {
  RunConfig run = run_of("tiny", "cuda");
  run.batch_size = 9;
  run.model.n_layer = 1;
  run.model.n_embd = 16;
  run.model.d_ff = 16;
  run.model.block_size = 8;
  run.model.vocab_size = 32;
  run.model.coupling_hidden = 4;
  return run;
}

TEST(CudaPlan, OfEveryCouplingAndRecomputeIsExact) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  expect_exact(little_run(), 1);
}

TEST(CudaPlan, OfOtherModelsIsExact) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const auto exact = [](const char* what, auto&& change) {
    RunConfig run = little_run();
    change(run);
    EXPECT_EQ(plan_memory(run).step, measured(run, 2)) << what;
  };
  exact("GPT-2", [](RunConfig& r) {
    const ModelConfig was = r.model;
    r.model = preset("nano", Family::gpt2);
    r.model.n_layer = was.n_layer;
    r.model.n_embd = was.n_embd;
    r.model.n_head = was.n_head;
    r.model.d_ff = was.d_ff;
    r.model.block_size = was.block_size;
    r.model.vocab_size = was.vocab_size;
  });
  exact("two layers", [](RunConfig& r) { r.model.n_layer = 2; });
  exact("dropout", [](RunConfig& r) { r.model.dropout = 0.1; });
  exact("shared key heads", [](RunConfig& r) { r.model.n_kv_head = 1; });
  exact("diff", [](RunConfig& r) { r.model.scoring = Scoring::diff; });
  exact("diff_v2", [](RunConfig& r) { r.model.scoring = Scoring::diff_v2; });
  exact("run back", [](RunConfig& r) {
    r.model.coupling = CouplingKind::leapfrog;
    r.model.coupling_run_back = true;
  });
  exact("rows in several parts", [](RunConfig& r) { r.batch_size = 70; });
  exact("a head in chunks", [](RunConfig& r) {
    r.model.vocab_size = 1000;
    r.batch_size = 40;
  });
}

TEST(CudaPlan, OfAWholeRunIsExact) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const TempDirectory dir;
  RunConfig run = tiny_run(dir);
  run.device = "cuda";
  run.max_iters = 4;
  run.diagnostics = 1;
  Recorder reporter;
  TrainContext context;
  context.reporter = &reporter;
  Allocator& memory = allocator(kCuda);
  const std::size_t before = memory.stats().allocated;
  memory.reset_peak();
  train(run, context);
  ASSERT_EQ(reporter.starts.size(), 1U);
  EXPECT_EQ(reporter.starts[0].planned_bytes, memory.stats().peak_allocated - before);
}

TEST(CudaPlan, RowsAndPointsAreThoseOfAProfile) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  RunConfig run = little_run();
  run.model.coupling = CouplingKind::euler;
  const Profile planned = plan_profile(run);
  const Profile taken = measure_profile(run, {.warmup = 0, .steps = 1});
  EXPECT_EQ(planned.peak_bytes, taken.peak_bytes);
  ASSERT_EQ(planned.rows.size(), taken.rows.size());
  for (std::size_t r = 0; r < planned.rows.size(); ++r) {
    EXPECT_EQ(planned.rows[r].highest, taken.rows[r].highest) << planned.rows[r].path;
    EXPECT_EQ(planned.rows[r].at_peak, taken.rows[r].at_peak) << planned.rows[r].path;
  }
  ASSERT_EQ(planned.points.size(), taken.points.size());
  for (std::size_t i = 0; i < planned.points.size(); ++i) {
    EXPECT_EQ(planned.points[i].bytes, taken.points[i].bytes) << i;
  }
}

}  // namespace
}  // namespace duet::test
