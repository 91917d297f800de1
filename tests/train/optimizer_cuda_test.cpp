// The optimizer on the GPU against the one on the cpu, and steps that it must not take.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/ops.h"
#include "runtime/cuda_status.h"
#include "runtime/memory_ops.h"
#include "runtime/random.h"
#include "tests/runtime/errors.h"
#include "tests/train/train_support.h"
#include "train/optimizer.h"

namespace duet::test {
namespace {

Tensor normals(std::int64_t n, std::uint32_t key, Device device) {
  Tensor t = Tensor::empty({n}, DType::f32);
  fill_normal(t, {7, key, 0, kUseTest, 0}, 0, 1);
  return to_device(t, device);
}

// Three tensors: one element, several pieces and a tail, one that decays.
struct Model {
  static constexpr std::int64_t kSizes[] = {1, 70'003, 260};
  Parameters parameters;
  Device device;

  explicit Model(Device where) : device(where) {
    for (std::uint32_t i = 0; i < 3; ++i) {
      parameters.add(concat("p", i), normals(kSizes[i], i, device), i == 2);
    }
  }
  void set_gradients(std::uint32_t step) {
    for (std::uint32_t i = 0; i < 3; ++i) {
      set_grad(*parameters.owners[i], normals(kSizes[i], 10 * step + i, device));
    }
  }
};

std::vector<float> values_of(const Tensor& t) {
  const Tensor host = to_device(t, kCpu);
  return {host.data<float>(), host.data<float>() + host.numel()};
}

class OptimizerCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_status().usable) GTEST_SKIP() << cuda_status().reason;
  }
};

// Nothing is read between the steps: tables of a step go up while others are still to be read.
TEST_F(OptimizerCuda, AsOnTheCpu) {
  Model there(kCuda), here(kCpu);
  StepOutcome outcomes[2];
  for (Model* model : {&there, &here}) {
    AdamW optimizer(model->parameters.named, {});
    for (std::uint32_t step = 1; step <= 6; ++step) {
      StepNumbers numbers(model->device);
      for (const double loss : {1.0, 0.5}) {
        numbers.add_loss(Tensor::full({}, loss, DType::f32, model->device));
      }
      model->set_gradients(step);
      numbers.measure(optimizer.tensors(), 1.0);
      optimizer.step(1e-2, numbers);
      if (step == 6) outcomes[model == &here] = numbers.read(optimizer.tensors());
    }
  }
  EXPECT_EQ(outcomes[0].loss, 1.5);
  EXPECT_NEAR(outcomes[0].grad_norm, outcomes[1].grad_norm, 1e-12 * outcomes[1].grad_norm);
  EXPECT_FALSE(outcomes[0].skipped);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto got = values_of(there.parameters.named[i].value);
    const auto want = values_of(here.parameters.named[i].value);
    for (std::size_t k = 0; k < got.size(); ++k)
      ASSERT_NEAR(got[k], want[k], 1e-6) << i << ", " << k;
  }
  EXPECT_EQ(first_non_finite(there.parameters.named), "");
}

TEST_F(OptimizerCuda, ASkippedStepMovesNothing) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Model model(kCuda);
  AdamW optimizer(model.parameters.named, {});
  const auto before = values_of(model.parameters.named[1].value);
  const auto step = [&](double loss) {
    StepNumbers numbers(kCuda);
    numbers.add_loss(Tensor::full({}, loss, DType::f32, kCuda));
    numbers.measure(optimizer.tensors(), 1.0);
    optimizer.step(1e-2, numbers);
    return numbers.read(optimizer.tensors());
  };
  model.set_gradients(1);
  EXPECT_TRUE(step(std::nan("")).skipped);
  set_grad(*model.parameters.owners[1], Tensor::full({70'003}, kInfinity, DType::f32, kCuda));
  set_grad(*model.parameters.owners[2], Tensor::full({260}, kInfinity, DType::f32, kCuda));
  const StepOutcome outcome = step(1.0);
  EXPECT_TRUE(outcome.skipped);
  EXPECT_EQ(outcome.first_bad, "p1");
  EXPECT_EQ(values_of(model.parameters.named[1].value), before);
  EXPECT_EQ(values_of(optimizer.first_moment(1)), std::vector<float>(before.size()));
  EXPECT_EQ(values_of(optimizer.second_moment(1)), std::vector<float>(before.size()));
  fill(model.parameters.named[2].value, std::nan(""));
  EXPECT_EQ(first_non_finite(model.parameters.named), "p2");
}

TEST_F(OptimizerCuda, AnIdOutOfRangeMovesNothing) {
  Model model(kCuda);
  AdamW optimizer(model.parameters.named, {});
  const auto before = values_of(model.parameters.named[1].value);
  model.set_gradients(1);
  embedding(Tensor::zeros({3, 4}, DType::f32, kCuda), Tensor::full({2}, 3, DType::i64, kCuda));
  StepNumbers numbers(kCuda);
  numbers.measure(optimizer.tensors(), 1.0);
  optimizer.step(1e-2, numbers);
  expect_in("embedding: ids[0]=3 is outside [0, 3)",
            error_of(ErrorKind::index, [&] { numbers.read(optimizer.tensors()); }));
  EXPECT_EQ(values_of(model.parameters.named[1].value), before);
}

}  // namespace
}  // namespace duet::test
