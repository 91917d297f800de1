// AdamW with decoupled weight decay, and the global gradient norm.
//
//   AdamW optimizer(named_tensors(model), {.beta2 = 0.95});
//   const GradientNorm norm = gradient_norm(optimizer.tensors());
//   if (norm.finite()) optimizer.step(lr, clip_scale(norm.value, 1.0));
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

class AdamW {
 public:
  // Moments start at zero, on the device of each tensor, in float32 (f64 for an f64 weight). A
  // weight narrower than that has a float32 master copy beside it (a bf16 weight of 1 would never
  // move by 1e-3). On meta alone so far: step() has no kernel for narrow weights, and says so.
  // Throws Error(usage) for betas outside [0, 1), eps <= 0 or a negative decay.
  AdamW(std::vector<NamedTensor> tensors, const AdamWOptions& options);

  // One update with gradient g = gradient * grad_scale, t = steps() + 1:
  //   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
  //   w = w - lr decay w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
  // A tensor without a gradient is left alone: weight and moments.
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
  double value = 0;       // sqrt of the sum of squares over all tensors, in f64
  std::string first_bad;  // name of the first tensor whose gradient is not finite, or would
                          // overflow the second moment; empty: none
  bool finite() const { return first_bad.empty(); }
};

// The same bits whatever the number of threads. `max_norm` is the norm that clipping will leave
// (0: no clipping); it decides whether squares fit the moments' dtype.
GradientNorm gradient_norm(const std::vector<NamedTensor>& tensors, double max_norm = 0);

// The name of the first tensor that holds NaN or infinity; empty: none.
std::string first_non_finite(const std::vector<NamedTensor>& tensors);

// The factor that brings `norm` down to `max_norm`: 1 when it is below, or when max_norm is 0.
double clip_scale(double norm, double max_norm);

}  // namespace duet
