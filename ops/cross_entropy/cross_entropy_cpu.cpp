#include <algorithm>

#include "ops/cross_entropy/cross_entropy.h"
#include "runtime/cpu/parallel.h"

namespace duet {
namespace {

// Rows in one chunk of work: about 32,000 logits.
std::int64_t row_grain(std::int64_t vocab) {
  return std::max<std::int64_t>(1, (1 << 15) / std::max<std::int64_t>(vocab, 1));
}

void forward(ConstView logits, ConstView targets, const CrossEntropyOptions& options, View stats,
             View losses, View /*factor*/, View loss) {
  const std::int64_t vocab = logits.size(1);
  visit_floating(logits.dtype, "cross_entropy", [&]<class T>(TypeTag<T>) {
    parallel_for(logits.size(0), row_grain(vocab), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        double* row_stats = stats.as<double>() + 2 * n;
        double& row_loss_out = losses.as<double>()[n];
        const std::int64_t target = target_at(targets, n);
        if (target == options.ignore_index) {
          row_stats[0] = row_stats[1] = row_loss_out = 0;
          continue;
        }
        const T* x = logits.as<T>() + n * logits.stride(0);
        ExpSum row;
        add_exp_sum(x, vocab, row);
        row_stats[0] = row.largest;
        row_stats[1] = row.sum;
        row_loss_out = row_loss(row, static_cast<double>(x[target]));
      }
    });
  });
  store_loss(losses, loss_factor(targets, options), loss);
}

void backward(ConstView logits, ConstView targets, const CrossEntropyOptions& options,
              ConstView stats, ConstView dy, View /*factor*/, View dlogits) {
  const std::int64_t vocab = logits.size(1);
  visit_floating(logits.dtype, "cross_entropy", [&]<class T>(TypeTag<T>) {
    const double factor = static_cast<double>(*dy.as<T>()) * loss_factor(targets, options);
    parallel_for(logits.size(0), row_grain(vocab), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        T* y = dlogits.as<T>() + n * vocab;
        const std::int64_t target = target_at(targets, n);
        if (target == options.ignore_index) {
          std::fill(y, y + vocab, T{0});
          continue;
        }
        const double* row_stats = stats.as<double>() + 2 * n;
        softmax_gradient(logits.as<T>() + n * logits.stride(0), 0, vocab,
                         {row_stats[0], row_stats[1]}, target, factor, y);
      }
    });
  });
}

void spread_targets(ConstView targets, const CrossEntropyOptions& options, View /*factor*/,
                    View weights, View one_hot) {
  const std::int64_t vocab = one_hot.size(1);
  visit_floating(weights.dtype, "cross_entropy", [&]<class T>(TypeTag<T>) {
    const T factor = static_cast<T>(loss_factor(targets, options));
    parallel_for(targets.size(0), row_grain(vocab), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        const std::int64_t target = target_at(targets, n);
        const bool counts = target != options.ignore_index;
        T* row = one_hot.as<T>() + n * vocab;
        std::fill(row, row + vocab, T{0});
        if (counts) row[target] = factor;
        weights.as<T>()[n] = counts ? factor : T{0};
      }
    });
  });
}

}  // namespace

double loss_factor(ConstView targets, const CrossEntropyOptions& options) {
  if (options.normalizer > 0) return 1 / options.normalizer;
  std::int64_t counted = 0;
  for (std::int64_t n = 0; n < targets.size(0); ++n) {
    counted += target_at(targets, n) != options.ignore_index;
  }
  return counted > 0 ? 1 / static_cast<double>(counted) : 0;
}

void store_loss(ConstView losses, double factor, View loss) {
  double sum = 0;
  for (std::int64_t n = 0; n < losses.size(0); ++n) sum += losses.as<double>()[n];
  visit_floating(loss.dtype, "cross_entropy",
                 [&]<class T>(TypeTag<T>) { *loss.as<T>() = static_cast<T>(sum * factor); });
}

extern const CrossEntropyKernels cross_entropy_cpu{forward, backward, spread_targets};

}  // namespace duet
