// Kernels of cross_entropy, and what linear_cross_entropy shares with it.
#pragma once

#include <cmath>

#include "ops/cross_entropy/exp_rows.h"
#include "ops/ops.h"
#include "runtime/kernel_table.h"
#include "runtime/view.h"

namespace duet {

struct CrossEntropyKernels {
  // loss = sum over the counted rows of -log softmax(logits[n])[targets[n]], / normalizer.
  // Keeps for backward what each row's softmax needs, stats[n] = (largest logit, sum of
  // exp(logit - largest)); 0 for ignored rows. `losses` and `factor` are scratch.
  // logits [N, V], last stride 1; targets [N], contiguous; stats [N, 2], losses [N], factor [],
  // f64; loss [].
  void (*forward)(ConstView logits, ConstView targets, const CrossEntropyOptions& options,
                  View stats, View losses, View factor, View loss);
  // dlogits = (softmax(logits) - onehot(targets)) * dy / normalizer; 0 for ignored rows. [N, V]
  void (*backward)(ConstView logits, ConstView targets, const CrossEntropyOptions& options,
                   ConstView stats, ConstView dy, View factor, View dlogits);
  // weights [N, 1] = 1 / normalizer, 0 for ignored rows; one_hot [N, V] = the weight at the target.
  void (*targets)(ConstView targets, const CrossEntropyOptions& options, View factor, View weights,
                  View one_hot);
};

extern const CrossEntropyKernels cross_entropy_cpu;
extern const CrossEntropyKernels cross_entropy_cuda;

// Throws Error(shape | dtype | device | index) unless `targets` has the shape of `input` without
// its last dimension, and each is in [0, vocab) or the ignore_index.
void check_targets(const char* op, const Tensor& input, const Tensor& targets, std::int64_t vocab,
                   const CrossEntropyOptions& options);

// targets as [N], contiguous.
Tensor flat_targets(const Tensor& targets);

// --- For kernels on cuda, where a target outside [0, V), which check_targets has noted, counts as
// ignored.

// factor [] = the value of dy [] (1 where its data is null) / normalizer; 0 when nothing counts.
void loss_factor_cuda(ConstView targets, const CrossEntropyOptions& options, ConstView dy,
                      View factor);

// The loss of each row, and where their data is not null: stats [N, 2], and
// dlogits [N, V] = (softmax(logits) - onehot(targets)) * factor, which may lie where the logits do.
void loss_rows_cuda(ConstView logits, ConstView targets, const CrossEntropyOptions& options,
                    ConstView factor, View stats, View losses, View dlogits);

// loss [] = sum of losses [N] * factor
void store_loss_cuda(ConstView losses, ConstView factor, View loss);

// --- For kernels on the cpu.

inline std::int64_t target_at(ConstView targets, std::int64_t row) {
  return targets.dtype == DType::i32 ? targets.as<std::int32_t>()[row]
                                     : targets.as<std::int64_t>()[row];
}

// 1 / normalizer; 0 when nothing counts.
double loss_factor(ConstView targets, const CrossEntropyOptions& options);

// *loss = sum of losses [N] * factor
void store_loss(ConstView losses, double factor, View loss);

// -log softmax(logits)[target], written so that nothing cancels at logits of 1e4.
inline double row_loss(const ExpSum& row, double target_logit) {
  return row.largest - target_logit + std::log(row.sum);
}

// Columns [begin, begin + n) of a row: y = (exp(x - largest) / sum - onehot(target)) * factor,
// where x and y, which may be the same, point at column `begin`.
template <class T>
void softmax_gradient(const T* x, std::int64_t begin, std::int64_t n, const ExpSum& row,
                      std::int64_t target, double factor, T* y) {
  const bool has_target = begin <= target && target < begin + n;
  const double logit = has_target ? static_cast<double>(x[target - begin]) : 0;
  scaled_exp(x, n, row.largest, factor / row.sum, y);
  // In double: a probability near 1 would lose its distance from 1.
  if (has_target) {
    const double p = std::exp(logit - row.largest) / row.sum;
    y[target - begin] = static_cast<T>((p - 1) * factor);
  }
}

}  // namespace duet
