// Checkpoints of two small tensors, written without a model.
#pragma once

#include <string>

#include "tests/train/train_support.h"
#include "train/checkpoint.h"

namespace duet::test {

// A state that a run at `step` might have.
inline TrainState state_at(std::int64_t step) {
  TrainState s;
  s.step = step;
  s.samples = 4 * step;
  s.tokens = 32 * step;
  s.optimizer_steps = step;
  s.windows_per_epoch = 10;
  s.seed = 1337;
  s.run_id = "0123456789ab";
  s.dtype = "f32";
  s.tokenizer = "byte";
  s.tokenizer_hash = make_byte_tokenizer()->hash();
  s.data = {"text", 1000, "00"};
  return s;
}

// Two parameters and moments whose every element is a function of the step.
struct ToyRun {
  Parameters parameters;
  std::unique_ptr<AdamW> optimizer;

  ToyRun() {
    parameters.add("weight", Tensor::zeros({2, 3}, DType::f32));
    parameters.add("bias", Tensor::zeros({3}, DType::f32));
    optimizer = std::make_unique<AdamW>(parameters.named, AdamWOptions{});
  }
  void set(std::int64_t step) {
    for (std::size_t i = 0; i < 2; ++i) {
      const std::int64_t n = parameters.named[i].value.numel();
      const auto fill = [&](Tensor& t, double offset) {
        for (std::int64_t k = 0; k < n; ++k) {
          t.mutable_data<float>()[k] =
              static_cast<float>(step * 100 + k) + static_cast<float>(offset);
        }
      };
      fill(parameters.named[i].value, 0.5);
      fill(optimizer->first_moment(i), 0.25);
      fill(optimizer->second_moment(i), 0.125);
    }
    optimizer->set_steps(step);
  }
  // Sets the tensors of `step` and saves them.
  std::string save(CheckpointWriter& writer, std::int64_t step, std::int64_t best_step = -1) {
    set(step);
    TrainState state = state_at(step);
    state.best_step = best_step;
    state.best_loss = 1.5;
    return writer.save(state, *optimizer);
  }
  // True if the tensors are exactly those of `step`.
  bool holds(std::int64_t step) {
    ToyRun expected;
    expected.set(step);
    bool same = optimizer->steps() == step;
    for (std::size_t i = 0; i < 2; ++i) {
      const auto equal = [](const Tensor& a, const Tensor& b) {
        return std::equal(a.data<float>(), a.data<float>() + a.numel(), b.data<float>());
      };
      same = same && equal(parameters.named[i].value, expected.parameters.named[i].value) &&
             equal(optimizer->first_moment(i), expected.optimizer->first_moment(i)) &&
             equal(optimizer->second_moment(i), expected.optimizer->second_moment(i));
    }
    return same;
  }
};

inline CheckpointWriter writer_for(const TempDirectory& dir, Reporter& reporter,
                                   std::int64_t keep = 100) {
  return CheckpointWriter(dir.file("run/checkpoints"), "0123456789ab", keep, reporter);
}

}  // namespace duet::test
