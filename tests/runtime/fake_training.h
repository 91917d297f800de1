// The requests of a training run without its numbers, for tests of the memory policy.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/allocator.h"

namespace duet::test {

// The allocations of a training step of a small transformer, in order. Gradients and moments appear
// in the first step and stay.
class FakeTraining {
 public:
  explicit FakeTraining(Allocator& memory) : memory_(memory) {
    for (int layer = 0; layer < kLayers; ++layer) {
      for (const std::size_t n : {3 * kC * kC, kC * kC, 8 * kC * kC, 4 * kC * kC, kC, kC}) {
        parameters_.push_back(n);
      }
    }
    parameters_.push_back(kV * kC);
    for (const std::size_t n : parameters_) keep(n);
  }
  ~FakeTraining() {
    for (Block* b : kept_) memory_.deallocate(b);
  }

  void step(std::size_t t) {
    const std::size_t x = kB * t * kC;
    std::vector<Block*> saved{floats(x)};
    for (int layer = 0; layer < kLayers; ++layer) {
      for (const std::size_t n : {x, kB * t, 3 * x, x, x, kB * kH * t * t, kB * kH * t, x}) {
        saved.push_back(floats(n));
      }
      free(floats(x));  // the projection, before it joins the residual
      for (const std::size_t n : {x, x, kB * t, 4 * x, 4 * x, 4 * x}) saved.push_back(floats(n));
      free(floats(x));
      saved.push_back(floats(x));
    }
    Block* logits = floats(kB * t * kV);
    Block* grad_logits = floats(kB * t * kV);
    free(logits);
    Block* grad = floats(x);
    free(grad_logits);
    while (!saved.empty()) {  // gradients flow back; what was saved is freed
      Block* next = floats(saved.size() % 5 == 0 ? 4 * x : x);
      free(saved.back());
      saved.pop_back();
      free(grad);
      grad = next;
      if (first_ && saved.size() % 3 == 0 && made_ < parameters_.size()) keep(parameters_[made_++]);
    }
    free(grad);
    if (first_) {
      for (; made_ < parameters_.size(); ++made_) keep(parameters_[made_]);
      for (const std::size_t n : parameters_) keep(n), keep(n);  // moments
    }
    first_ = false;
  }

 private:
  static constexpr std::size_t kB = 4, kC = 128, kH = 4, kV = 2048;
  static constexpr int kLayers = 4;
  Block* floats(std::size_t n) { return memory_.allocate(n * 4); }
  void free(Block* b) { memory_.deallocate(b); }
  void keep(std::size_t n) { kept_.push_back(floats(n)); }

  Allocator& memory_;
  std::vector<std::size_t> parameters_;
  std::vector<Block*> kept_;
  std::size_t made_ = 0;
  bool first_ = true;
};

}  // namespace duet::test
