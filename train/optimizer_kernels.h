// Kernels behind train/optimizer.h: one launch over the pieces of all tensors. What a step decides
// is written and read on the device: see StepScalar.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/kernel_table.h"
#include "runtime/view.h"

namespace duet {

// The numbers of a step, f64 [kStepScalars] on its device.
enum StepScalar : std::uint8_t {
  kStepLoss,       // sum over the micro-batches
  kStepNorm,       // of the gradient, before clipping
  kStepGradScale,  // what the update multiplies gradients with
  kStepFirstBad,   // index of the first tensor that is not finite or too large; -1: none
  kStepSkip,       // not 0: the update leaves weights and moments as they are
  kStepScalars
};

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
  double beta1, beta2, eps;
  double keep;       // 1 - lr * weight_decay, for pieces that decay
  double step_size;  // lr / (1 - beta1^t)
  double v_scale;    // 1 / sqrt(1 - beta2^t)
};

template <class Piece>
std::uint64_t bytes_of_pieces(DType dtype, std::span<const Piece> pieces) {
  std::uint64_t elements = 0;
  for (const Piece& piece : pieces) elements += static_cast<std::uint64_t>(piece.size);
  return elements * size_of(dtype);
}

struct AdamWCall {
  DType dtype;
  std::span<const AdamWPiece> pieces;
  AdamWScalars scalars;
  ConstView step;  // the numbers of the step
  View table;      // bytes, scratch: scalars and pieces where a GPU can read them

  // Weight, gradient and both moments.
  std::uint64_t view_bytes() const { return 4 * bytes_of_pieces(dtype, pieces); }
};
inline std::int64_t adamw_table_bytes(std::size_t pieces) {
  return static_cast<std::int64_t>(sizeof(AdamWScalars) + pieces * sizeof(AdamWPiece));
}

struct ValuePiece {
  const void* data;
  std::int64_t size;
};

// Tensor i is pieces [first[i], first[i + 1]).
struct NormCall {
  DType dtype;
  std::span<const ValuePiece> pieces;
  std::span<const std::int64_t> first;
  double limit;     // a tensor is bad whose squares sum up to this or more, ...
  double clipped;   // ... or to this, if that is less: what clipping will leave of them
  double max_norm;  // to clip to; 0: no clipping
  View step;        // the numbers of the step; reads the loss, writes all others
  View sums;        // f64 [pieces], scratch: sum of squares of each piece
  View table;       // bytes, scratch: pieces and first where a GPU can read them

  std::uint64_t view_bytes() const { return bytes_of_pieces(dtype, pieces); }
};
inline std::int64_t norm_table_bytes(std::size_t pieces, std::size_t tensors) {
  return static_cast<std::int64_t>(pieces * sizeof(ValuePiece) +
                                   (tensors + 1) * sizeof(std::int64_t));
}

// The factor that brings `norm` down to `max_norm`: 1 when it is below, or when max_norm is 0.
constexpr double clip_factor(double norm, double max_norm) {
  return max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0;
}
// NaN and infinity are bad, and so is a sum of squares that the second moment would not hold.
constexpr bool is_bad_square_sum(double sum, double limit, double clipped) {
  return !(sum - sum == 0) || (sum < clipped ? sum : clipped) >= limit;
}

struct OptimizerKernels {
  // The numbers of a step before anything is known: no loss, this grad_scale, nothing bad.
  void (*begin)(double grad_scale, View step);
  // The update, unless the step is to be skipped.
  void (*adamw)(const AdamWCall& call);
  // Norm, clipping and the first bad tensor. A bad tensor or a loss that is not finite lets the
  // step be skipped.
  void (*norm)(const NormCall& call);
  // The step's loss += loss []
  void (*add_loss)(ConstView loss, View step);
};

extern const OptimizerKernels optimizer_cpu;
extern const OptimizerKernels optimizer_cuda;

}  // namespace duet
