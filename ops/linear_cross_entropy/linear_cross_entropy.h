// Kernels of linear_cross_entropy.
#pragma once

#include "ops/cross_entropy/cross_entropy.h"
#include "runtime/kernel_table.h"
#include "runtime/view.h"

namespace duet {

// Everything one call needs. R rows of logits exist at a time.
struct LinearCrossEntropyCall {
  ConstView x;        // [N, C], a gemm operand
  ConstView weight;   // [V, C], a gemm operand; its padding rows already cut off
  ConstView targets;  // [N], contiguous
  CrossEntropyOptions options;
  View logits;   // [R, V], scratch
  View stats;    // [R, 2], f64, scratch
  View losses;   // [N], f64, scratch
  View factor;   // [], f64, scratch
  View loss;     // []
  View dx;       // [N, C], d(loss)/dx; null data: not wanted
  View dweight;  // [V, C], d(loss)/dweight; null data: not wanted
};

struct LinearCrossEntropyKernels {
  // Loss and the wanted gradients in one pass over the rows: the logits are computed once.
  void (*run)(const LinearCrossEntropyCall& call);
  // gradient *= dy, contiguous
  void (*scale)(ConstView dy, View gradient);
  // out += gradient * dy, all contiguous
  void (*add_scaled)(ConstView dy, ConstView gradient, View out);
};

extern const LinearCrossEntropyKernels linear_cross_entropy_cpu;
extern const LinearCrossEntropyKernels linear_cross_entropy_cuda;

}  // namespace duet
