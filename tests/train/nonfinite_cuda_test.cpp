// On the GPU, too, every op is blamed for its own NaN, and checks take none of the GPU's memory.
#include <gtest/gtest.h>

#include "runtime/allocator.h"
#include "tests/runtime/cuda_support.h"
#include "tests/train/nonfinite_support.h"

namespace duet::test {
namespace {

TEST(CudaNonFinite, BlamesOpsForTheirOwnNaN) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  for (const Family family : {Family::llama, Family::gpt2}) {
    ModelConfig model = micro(family);
    model.n_layer = 1;
    if (family == Family::gpt2) model.recompute = RecomputeMode::block;
    TinyStep tiny(model, kCuda);
    expect_every_op_is_blamed(tiny, 11);
  }
}

TEST(CudaNonFinite, ChecksTakeNoMemory) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const auto figures = [](TraceNonfinite mode) {
    TinyStep tiny(micro(Family::llama), kCuda);
    NonFiniteTrace trace(mode);
    allocator(kCuda).reset_peak();
    const std::size_t before = allocator(kCuda).stats().allocated;
    const StepResult result = tiny.run(&trace);
    EXPECT_EQ(trace.take_warnings(), std::vector<std::string>{});
    return std::pair(result.loss, allocator(kCuda).stats().peak_allocated - before);
  };
  EXPECT_EQ(figures(TraceNonfinite::all), figures(TraceNonfinite::off));
}

}  // namespace
}  // namespace duet::test
