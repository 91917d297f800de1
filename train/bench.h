// How fast a training step is beside the floor of its arithmetic, both measured in the same run.
//
//   StepBench plain(config), coupled(other);
//   for (...) { plain.step(); coupled.step(); }       // in turn: a busy minute hits both
#pragma once

#include <cstdint>

#include "models/transformer.h"
#include "train/trainer.h"

namespace duet {

// A configuration for steps on random tokens, all of the vocabulary used: the one that training on
// the named data or task would have; where neither is named, the preset's own. Throws Error(usage)
// if the model does not fit together.
RunConfig without_data(RunConfig run);
// "the vocabulary is preset 60m's own, 50,257; ...", for a run that named none and whose text would
// most likely have another; empty where there is nothing to tell.
std::string vocabulary_note(const RunConfig& run);

// The tensors of a micro-batch of the run's task, unwritten.
Batch empty_batch(const RunConfig& config, Device device);

// One model in training on random tokens, drawn from the whole vocabulary.
class StepBench {
 public:
  // Throws Error(usage) if the configuration does not fit together. On meta a step is a walk: the
  // same allocations, no arithmetic.
  explicit StepBench(const RunConfig& config, Device device = kCpu);

  struct Step {
    double seconds;
    std::int64_t minor_faults;  // pages the system had to give, of the whole process
  };
  Step step(const StepHooks& hooks = {});

  Device device() const { return device_; }
  std::int64_t parameters() const;
  std::int64_t tokens() const { return tokens_; }  // of a step
  double flops() const { return flops_; }          // of a step: products and attention
  // What the optimizer has to read and write: gradients, weights and two moments.
  double optimizer_bytes() const;

 private:
  RunConfig config_;
  Device device_;
  Transformer model_;
  AdamW optimizer_;
  std::int64_t steps_ = 0, tokens_;
  double flops_;
};

// What the device reaches: one large matrix product at the model's own shape, and one copy that
// no cache holds.
class Ceiling {
 public:
  Ceiling(const ModelConfig& model, std::int64_t tokens, Device device = kCpu);

  double flops_per_second();  // one product, timed
  double bytes_per_second();  // one copy, read and written bytes

 private:
  Tensor a_, b_, c_, from_, to_;
  std::vector<std::byte> scratch_;  // of the product on the cpu
};

}  // namespace duet
