#include <algorithm>

#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/matmul/matmul_cpu.h"
#include "runtime/cpu/parallel.h"
#include "runtime/memory_ops_kernels.h"

namespace duet {
namespace {

// Columns of logits that go through product, softmax and product while they are in the cache.
constexpr std::int64_t kTileColumns = 2048;
// Elements of one share of a pointwise loop.
constexpr std::int64_t kGrain = 1 << 15;

// Rows [begin, begin + n) of a matrix, or columns.
template <class AnyView>
AnyView rows_of(AnyView x, std::int64_t begin, std::int64_t n) {
  const std::int64_t bytes = begin * x.stride(0) * static_cast<std::int64_t>(size_of(x.dtype));
  if constexpr (std::is_same_v<AnyView, View>) {
    x.data = static_cast<std::byte*>(x.data) + bytes;
  } else {
    x.data = static_cast<const std::byte*>(x.data) + bytes;
  }
  x.shape[0] = n;
  return x;
}
template <class AnyView>
AnyView columns_of(const AnyView& x, std::int64_t begin, std::int64_t n) {
  return transposed(rows_of(transposed(x), begin, n));
}

template <class T>
class Run {
 public:
  explicit Run(const LinearCrossEntropyCall& call)
      : c_(call), factor_(loss_factor(call.targets, call.options)), vocab_(call.weight.size(0)) {}

  void operator()() {
    const std::int64_t count = c_.x.size(0);
    // No row writes to dW then, and no column to dx.
    if (has(c_.dweight) && count == 0) memory_ops_cpu.fill(c_.dweight, 0.0);
    if (has(c_.dx) && vocab_ == 0) memory_ops_cpu.fill(c_.dx, 0.0);
    for (std::int64_t begin = 0; begin < count; begin += c_.logits.size(0)) {
      begin_ = begin;
      rows_ = std::min(c_.logits.size(0), count - begin);
      softmax_sums();
      if (has(c_.dx) || has(c_.dweight)) gradients();
    }
    store_loss(c_.losses, factor_, c_.loss);
  }

 private:
  static bool has(const View& v) { return v.data != nullptr; }
  std::int64_t target(std::int64_t row) const { return target_at(c_.targets, begin_ + row); }
  T* logits(std::int64_t row) const { return c_.logits.as<T>() + row * vocab_; }

  template <class F>
  void for_tiles(F&& f) const {
    for (std::int64_t v = 0; v < vocab_; v += kTileColumns) {
      f(v, std::min(kTileColumns, vocab_ - v));
    }
  }
  template <class F>
  void for_rows(F&& f) const {
    parallel_for(rows_, 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) f(r);
    });
  }

  // logits = x W^T, tile by tile; the largest logit and the sum of each row; the losses.
  void softmax_sums() {
    const ConstView x = rows_of(c_.x, begin_, rows_);
    for (std::int64_t r = 0; r < rows_; ++r) put(r, {});
    for_tiles([&](std::int64_t v, std::int64_t n) {
      gemm_cpu(x, transposed(rows_of(c_.weight, v, n)),
               columns_of(rows_of(c_.logits, 0, rows_), v, n), false);
      for_rows([&](std::int64_t r) {
        ExpSum row = get(r);
        add_exp_sum(logits(r) + v, n, row);
        put(r, row);
      });
    });
    for (std::int64_t r = 0; r < rows_; ++r) {
      c_.losses.as<double>()[begin_ + r] =
          ignored(r) ? 0 : row_loss(get(r), static_cast<double>(logits(r)[target(r)]));
    }
  }

  // Tile by tile, the logits become d(loss)/d(logits), and with it dx and dW.
  void gradients() {
    const ConstView x = rows_of(c_.x, begin_, rows_);
    for_tiles([&](std::int64_t v, std::int64_t n) {
      for_rows([&](std::int64_t r) {
        T* tile = logits(r) + v;
        if (ignored(r)) {
          std::fill(tile, tile + n, T{0});
        } else {
          softmax_gradient(tile, v, n, get(r), target(r), factor_, tile);
        }
      });
      const ConstView dlogits = columns_of(rows_of(c_.logits, 0, rows_), v, n);
      if (has(c_.dx)) {
        gemm_cpu(dlogits, rows_of(c_.weight, v, n), rows_of(c_.dx, begin_, rows_), v > 0);
      }
      if (has(c_.dweight)) {
        gemm_cpu(transposed(dlogits), x, rows_of(c_.dweight, v, n), begin_ > 0);
      }
    });
  }

  bool ignored(std::int64_t row) const { return target(row) == c_.options.ignore_index; }
  ExpSum get(std::int64_t row) const {
    const double* s = c_.stats.as<double>() + 2 * row;
    return {s[0], s[1]};
  }
  void put(std::int64_t row, const ExpSum& value) const {
    double* s = c_.stats.as<double>() + 2 * row;
    s[0] = value.largest;
    s[1] = value.sum;
  }

  const LinearCrossEntropyCall& c_;
  const double factor_;
  const std::int64_t vocab_;
  std::int64_t begin_ = 0;  // the first row of the chunk
  std::int64_t rows_ = 0;   // rows in the chunk
};

void run(const LinearCrossEntropyCall& call) {
  visit_floating(call.x.dtype, "linear_cross_entropy",
                 [&]<class T>(TypeTag<T>) { Run<T>{call}(); });
}

// Both are contiguous: new tensors of this op, or a leaf's buffer checked to be so.
void scale(ConstView dy, View gradient) {
  visit_floating(gradient.dtype, "linear_cross_entropy", [&]<class T>(TypeTag<T>) {
    const T factor = *dy.as<T>();
    if (factor == T{1}) return;
    T* g = gradient.as<T>();
    parallel_for(gradient.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) g[i] *= factor;
    });
  });
}

void add_scaled(ConstView dy, ConstView gradient, View out) {
  visit_floating(gradient.dtype, "linear_cross_entropy", [&]<class T>(TypeTag<T>) {
    const T factor = *dy.as<T>();
    const T* g = gradient.as<T>();
    T* o = out.as<T>();
    parallel_for(gradient.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) o[i] += g[i] * factor;
    });
  });
}

}  // namespace

extern const LinearCrossEntropyKernels linear_cross_entropy_cpu{run, scale, add_scaled};

}  // namespace duet
