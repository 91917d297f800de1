// Kernels behind train/optimizer.h: one launch over the pieces of all tensors.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/dtype.h"

namespace duet {

// A run of elements of one tensor; weight, gradient and moments have the same dtype.
struct AdamWPiece {
  void* weight;
  const void* gradient;
  void* m;
  void* v;
  std::int64_t size;
  bool decay;
};

// The update with everything that does not depend on the element worked out:
//   w = w * keep - step_size * m / (sqrt(v) * v_scale + eps)
struct AdamWScalars {
  double grad_scale, beta1, beta2, eps;
  double keep;       // 1 - lr * weight_decay, for pieces that decay
  double step_size;  // lr / (1 - beta1^t)
  double v_scale;    // 1 / sqrt(1 - beta2^t)
};

struct ValuePiece {
  const void* data;
  std::int64_t size;
};

struct OptimizerKernels {
  void (*adamw)(DType dtype, std::span<const AdamWPiece> pieces, AdamWScalars scalars);
  // sums[i] = sum of squares of piece i, in f64.
  void (*square_sums)(DType dtype, std::span<const ValuePiece> pieces, double* sums);
};

extern const OptimizerKernels optimizer_cpu;

}  // namespace duet
