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
  View scratch;  // linear_cross_entropy_scratch() bytes; null data for none
  View loss;     // []
  View dx;       // [N, C], d(loss)/dx; null data: not wanted
  View dweight;  // [V, C], d(loss)/dweight; null data: not wanted

  // All N rows of logits pass through the scratch.
  std::uint64_t view_bytes() const {
    const std::int64_t chunk = logits.shape[0];
    const auto chunks =
        static_cast<std::uint64_t>(chunk > 0 ? (x.shape[0] + chunk - 1) / chunk : 0);
    return viewed_bytes(x) + viewed_bytes(weight) + viewed_bytes(targets) + viewed_bytes(losses) +
           viewed_bytes(loss) + viewed_bytes(dx) + viewed_bytes(dweight) +
           chunks * viewed_bytes(logits);
  }
};

// Bytes of scratch that the call's products want on `device`. No data is read.
std::size_t linear_cross_entropy_scratch(const LinearCrossEntropyCall& call, Device device);

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
