// AdamW with decoupled weight decay, and the global gradient norm.
//
//   AdamW optimizer(named_tensors(model), {.beta2 = 0.95});
//   StepNumbers numbers(device);
//   numbers.add_loss(loss);                          // after backward
//   numbers.measure(optimizer.tensors(), 1.0);       // norm, clipping, what is not finite
//   optimizer.step(lr, numbers);                     // or not, as the numbers say
//   const StepOutcome outcome = numbers.read(optimizer.tensors());
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/module.h"

namespace duet {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double eps = 1e-8;
  double weight_decay = 0.1;  // on tensors whose Parameter says `decay`
};

// What one step found; numbers of its device, read at its end.
struct StepOutcome {
  double loss = 0;
  double grad_norm = 0;   // sqrt of the sum of squares over all tensors, in f64
  std::string first_bad;  // name of the first tensor whose gradient is not finite, or would
                          // overflow the second moment; empty: none
  bool skipped = false;   // for that, or since the loss is not finite: no update
};

// The numbers of a step, on its device: a GPU decides by them without a word from the host.
class StepNumbers {
 public:
  // Gradients count as they are until measure() is called. Allocates, as measure() does.
  explicit StepNumbers(Device device, double grad_scale = 1);

  void add_loss(const Tensor& loss);  // [], f32 or f64
  // The norm over all gradients, the factor that clips it to `max_norm` (0: no clipping), and
  // whether the step can be taken. On a cpu the same bits whatever the number of threads.
  void measure(const std::vector<NamedTensor>& tensors, double max_norm);
  // Waits for the device; zeros on meta. Throws Error(index) for an id that kernels on a GPU found
  // out of range.
  StepOutcome read(const std::vector<NamedTensor>& tensors) const;

  ConstView view() const { return scalars_.view(); }

 private:
  Tensor scalars_;  // f64 [kStepScalars]
};

class AdamW {
 public:
  // Moments start at zero, on the device of each tensor, in float32 (f64 for an f64 weight). A
  // weight narrower than that has a float32 master copy beside it (a bf16 weight of 1 would never
  // move by 1e-3). On meta alone so far: step() has no kernel for narrow weights, and says so.
  // Throws Error(usage) for betas outside [0, 1), eps <= 0 or a negative decay.
  AdamW(std::vector<NamedTensor> tensors, const AdamWOptions& options);

  // One update with gradient g = gradient * grad_scale, t = steps() + 1, unless the numbers say
  // that the step is skipped. It counts in any case: who reads of a skipped step sets steps() back.
  //   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
  //   w = w - lr decay w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
  // A tensor without a gradient is left alone: weight and moments.
  void step(double lr, const StepNumbers& numbers);
  void step(double lr, double grad_scale = 1);

  // Drops every gradient, so that the next backward() starts from zero.
  void zero_grad();

  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }  // resume
  const AdamWOptions& options() const { return options_; }
  const std::vector<NamedTensor>& tensors() const { return tensors_; }
  // The moments of tensors()[i]; written by resume.
  Tensor& first_moment(std::size_t i) { return moments_[i].m; }
  Tensor& second_moment(std::size_t i) { return moments_[i].v; }

 private:
  struct Moments {
    Tensor m, v;
    Tensor master;  // undefined where the weight is as wide as the moments
  };
  std::vector<NamedTensor> tensors_;
  std::vector<Moments> moments_;
  AdamWOptions options_;
  std::int64_t steps_ = 0;
};

struct GradientNorm {
  double value = 0;
  std::string first_bad;
  bool finite() const { return first_bad.empty(); }
};

// StepNumbers::measure and read in one. `max_norm` is the norm that clipping will leave (0: no
// clipping); it decides whether squares fit the moments' dtype.
GradientNorm gradient_norm(const std::vector<NamedTensor>& tensors, double max_norm = 0);

// The name of the first tensor that holds NaN or infinity; empty: none.
std::string first_non_finite(const std::vector<NamedTensor>& tensors);

// The factor that brings `norm` down to `max_norm`: 1 when it is below, or when max_norm is 0.
double clip_scale(double norm, double max_norm);

}  // namespace duet
