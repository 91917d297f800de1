// Training runs on the GPU: checkpoints that change the device, memory that runs out, what an
// evaluation and a generation need, and a real model on real text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/transformer.h"
#include "tests/runtime/cuda_support.h"
#include "tests/runtime/errors.h"
#include "tests/train/project_text.h"
#include "tests/train/train_support.h"
#include "train/bench.h"
#include "train/checkpoint.h"
#include "train/profile/profile.h"
#include "train/sampler.h"
#include "train/trainer.h"

namespace duet::test {
namespace {

TrainResult run_on(const char* device, RunConfig config, std::int64_t steps, Recorder& reporter) {
  config.device = device;
  config.max_iters = steps;
  config.resume = reporter.starts.empty() ? config.resume : true;
  TrainContext context;
  context.reporter = &reporter;
  return train(config, context);
}

RunConfig small_run(const TempDirectory& dir) {
  RunConfig config = tiny_run(dir);
  config.schedule = ScheduleKind::constant;  // the rate does not depend on where a part ends
  config.warmup_iters = 0;
  return config;
}

void expect_close(const std::vector<StepReport>& got, const std::vector<StepReport>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].step, want[i].step);
    EXPECT_NEAR(got[i].loss, want[i].loss, 1e-4 * want[i].loss) << "step " << want[i].step;
  }
}

TEST(CudaTrainer, ACheckpointChangesTheDeviceAndGoesOn) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const TempDirectory dir, other;
  RunConfig config = small_run(dir);
  Recorder whole;
  RunConfig alone = config;
  alone.out_dir = other.file("run");
  run_on("cpu", alone, 12, whole);

  Recorder reporter;
  run_on("cpu", config, 4, reporter);
  EXPECT_EQ(reporter.starts.back().device, "cpu");
  run_on("cuda", config, 8, reporter);
  EXPECT_EQ(reporter.starts.back().device.rfind("cuda:0", 0), 0U) << reporter.starts.back().device;
  expect_in(
      "device (sums run in another order: losses agree in about six digits, not in their "
      "bits) was cpu, now cuda",
      reporter.notices);
  const TrainResult result = run_on("cpu", config, 12, reporter);
  expect_in("was cuda, now cpu", reporter.notices);
  expect_close(reporter.steps, whole.steps);
  EXPECT_EQ(result.step, 12);
  ASSERT_EQ(reporter.evals.size(), whole.evals.size());
  for (std::size_t i = 0; i < whole.evals.size(); ++i) {
    EXPECT_NEAR(reporter.evals[i].loss, whole.evals[i].loss, 1e-4 * whole.evals[i].loss);
  }
}

TEST(CudaTrainer, AnInterruptedRunOnTheGpuEndsWithTheSameBits) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const TempDirectory dir, other;
  const RunConfig config = small_run(dir);
  RunConfig alone = config;
  alone.out_dir = other.file("run");
  Recorder parts, whole;
  run_on("cuda", config, 4, parts);
  const TrainResult resumed = run_on("cuda", config, 8, parts);
  const TrainResult straight = run_on("cuda", alone, 8, whole);
  EXPECT_EQ(parts.notices, "");
  EXPECT_EQ(checkpoint_tensors(resumed.checkpoint), checkpoint_tensors(straight.checkpoint));
}

TEST(CudaTrainer, StartsFromWeightsThatTheCpuWrote) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const TempDirectory dir;
  RunConfig config = small_run(dir);
  Recorder first, second;
  const TrainResult result = run_on("cpu", config, 4, first);
  config.init_from = result.checkpoint;
  config.out_dir = dir.file("second");
  run_on("cuda", config, 2, second);
  EXPECT_LT(second.steps[0].loss, first.steps[0].loss);
}

TEST(CudaTrainer, GeneratesAsOnTheCpu) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  ModelConfig model = tiny_run(TempDirectory()).model;
  model.vocab_size = 64;
  const std::vector<std::int32_t> prompt{1, 2, 3};
  const auto greedy = [&](Device device) {
    Transformer net(model, DType::f32, device);
    net.initialize(3);
    return generate(net, prompt, {.max_new_tokens = 5, .temperature = 0}).tokens;
  };
  EXPECT_EQ(greedy(kCuda), greedy(kCpu));
}

TEST(CudaTrainer, RefusesWhatHasNoKernels) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const TempDirectory dir;
  RunConfig config = small_run(dir);
  config.device = "cuda";
  config.dtype = "bfloat16";
  expect_in("bfloat16 has no kernels on CUDA", error_of(ErrorKind::usage, [&] { train(config); }));
  config.dtype = "float64";
  expect_in("float64 has no kernels on CUDA", error_of(ErrorKind::usage, [&] { train(config); }));
}

// Launches of the first layer in one step, forward and backward.
std::array<std::uint64_t, 2> launches_of_layer(const ModelConfig& model) {
  RunConfig config;
  config.device = "cuda";
  config.batch_size = 1;
  config.model = model;
  config.model.vocab_size = 32;
  const Profile profile = measure_profile(config, {.warmup = 0, .steps = 1});
  const auto row = std::find_if(profile.rows.begin(), profile.rows.end(),
                                [](const ProfileRow& r) { return r.path == "blocks.0"; });
  EXPECT_NE(row, profile.rows.end());
  EXPECT_GT(profile.rows[0].work[2].launches, 0U);  // the optimizer
  EXPECT_GT(row->work[0].bytes, 0U);
  EXPECT_GE(profile.rows[0].work[0].launches, row->work[0].launches);
  return {row->work[0].launches, row->work[1].launches};
}

// hamiltonian-potential is made of other ops and has no kernel of its own.
TEST(CudaTrainer, TheCouplingAddsOneLaunchForwardAndTwoBackward) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  ModelConfig model = tiny_run(TempDirectory()).model;
  const auto plain = launches_of_layer(model);
  EXPECT_GT(plain[0], 4U);
  for (const CouplingKind coupling :
       {CouplingKind::euler, CouplingKind::leapfrog, CouplingKind::symplectic_euler,
        CouplingKind::uncoupled, CouplingKind::uncoupled_k, CouplingKind::affine}) {
    model.coupling = coupling;
    const auto coupled = launches_of_layer(model);
    EXPECT_LE(coupled[0], plain[0] + 1) << "forward, coupling " << static_cast<int>(coupling);
    EXPECT_LE(coupled[1], plain[1] + 2) << "backward, coupling " << static_cast<int>(coupling);
  }
}

TEST(CudaTrainer, ProfilePrintsLaunchesAndBytes) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  RunConfig config;
  config.device = "cuda";
  config.batch_size = 1;
  config.model = tiny_run(TempDirectory()).model;
  config.model.vocab_size = 32;
  const Profile profile = measure_profile(config, {.warmup = 0, .steps = 1});
  expect_in("launches of a step, and the bytes handed to them", profile_text(profile, 3));
  expect_in("\"forward_launches\"", profile_json(profile));
  EXPECT_EQ(profile.rows[0].path, "");
  EXPECT_GT(profile.peak_bytes, 0U);
}

#if DUET_SIM_CUDA
// The products bring the GELU and the gradients of the biases along, which NVIDIA's cublasLt
// promises for no GPU.
TEST(CudaTrainer, ALayerOfGpt2TakesEightLaunchesForwardAndTwentyOneBackward) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  ModelConfig model = family_defaults(Family::gpt2);
  model.n_layer = 1;
  model.n_head = 2;
  model.n_embd = 16;
  model.block_size = 8;
  const auto launches = launches_of_layer(model);
  EXPECT_LE(launches[0], 8U);
  EXPECT_LE(launches[1], 21U);
}

// From the n-th block on the GPU has no more memory.
class RunsOut final : public MemoryListener {
 public:
  explicit RunsOut(std::int64_t n) : left_(n) {
    allocator(kCuda).set_listener(this);
    on_memory({});
  }
  ~RunsOut() override {
    allocator(kCuda).set_listener(nullptr);
    sim::runtime_options().memory = memory_;
  }
  void on_memory(const MemoryEvent& event) noexcept override {
    if (event.type == MemoryEvent::Type::allocate && --left_ == 0)
      sim::runtime_options().memory = 0;
  }

 private:
  std::int64_t left_;
  std::size_t memory_ = sim::runtime_options().memory;
};

// Wherever in a step memory runs out: a clear error, nothing left behind, and the next, smaller
// step runs.
TEST(CudaTrainer, MemoryThatRunsOutAnywhereLeavesNothingBehind) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const OwnAllocations own;  // every tensor is one cudaMalloc
  RunConfig config;
  config.device = "cuda";
  config.batch_size = 2;
  config.model = tiny_run(TempDirectory()).model;
  config.model.vocab_size = 32;
  RunConfig smaller = config;
  smaller.batch_size = 1;
  StepBench(config, kCuda).step();  // what stays for good is made: workspaces
  synchronize(kCuda);
  const std::size_t before = sim::live_bytes();
  std::int64_t n = 1;
  for (bool refused = true; refused; ++n) {
    ASSERT_LT(n, 2000);
    refused = false;
    try {
      StepBench bench(config, kCuda);
      const RunsOut none_left(n);
      bench.step();
    } catch (const Error& e) {
      refused = true;
      EXPECT_EQ(e.kind(), ErrorKind::memory) << e.what();
      expect_in("out of memory", e.what());
    }
    synchronize(kCuda);
    EXPECT_EQ(sim::live_bytes(), before) << "block " << n;
    EXPECT_GT(StepBench(smaller, kCuda).step().seconds, 0);
  }
  EXPECT_GT(n, 40);
}
#endif

TEST(CudaTrainer, NanoTrainsOnText) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const TempDirectory dir;
  RunConfig config;
  config.preset = "nano";
  config.model = preset("nano", Family::gpt2);
  config.model.vocab_size = 0;
  config.data = test_text(dir, "tinyshakespeare/input.txt");
  config.batch_size = 1;
  config.max_iters = 20;
  config.warmup_iters = 0;
  config.eval_interval = 20;
  config.eval_iters = 1;
  config.diagnostics = 0;
  Recorder cpu, cuda;
  config.out_dir = dir.file("cpu");
  run_on("cpu", config, 20, cpu);
  config.out_dir = dir.file("cuda");
  run_on("cuda", config, 20, cuda);
  expect_close(cuda.steps, cpu.steps);
  EXPECT_LT(cuda.steps.back().loss, cuda.steps.front().loss - 1);
  EXPECT_NEAR(cuda.evals.back().loss, cpu.evals.back().loss, 1e-3);
}

}  // namespace
}  // namespace duet::test
