#include <algorithm>

#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/matmul/matmul_cpu.h"
#include "runtime/cpu/parallel.h"
#include "runtime/memory_ops_kernels.h"
#include "runtime/stop.h"

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

bool has(const View& v) { return v.data != nullptr; }

struct Product {
  ConstView a, b;
  View c;
  bool accumulate;
};

// The products of one tile of logits: `rows` rows of x from `row` on, `columns` words from `word`.
class Tile {
 public:
  Tile(const LinearCrossEntropyCall& call, std::int64_t row, std::int64_t rows, std::int64_t word,
       std::int64_t columns)
      : c_(call), row_(row), rows_(rows), word_(word), columns_(columns) {}

  Product logits() const { return {x(), transposed(weight()), tile(), false}; }
  Product dx() const { return {tile(), weight(), rows_of(c_.dx, row_, rows_), word_ > 0}; }
  Product dweight() const {
    return {transposed(ConstView(tile())), x(), rows_of(c_.dweight, word_, columns_), row_ > 0};
  }

 private:
  ConstView x() const { return rows_of(c_.x, row_, rows_); }
  ConstView weight() const { return rows_of(c_.weight, word_, columns_); }
  View tile() const { return columns_of(rows_of(c_.logits, 0, rows_), word_, columns_); }

  const LinearCrossEntropyCall& c_;
  std::int64_t row_, rows_, word_, columns_;
};

// f(begin, size) of the first, the second and the last piece of [0, n) cut into pieces of `size`.
template <class F>
void for_three(std::int64_t n, std::int64_t size, F&& f) {
  if (n <= 0) return;
  const std::int64_t last = (n - 1) / size;
  for (const std::int64_t piece : {std::int64_t{0}, std::int64_t{1}, last}) {
    if (piece <= last) f(piece * size, std::min(size, n - piece * size));
  }
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
      check_stop();
      begin_ = begin;
      rows_ = std::min(c_.logits.size(0), count - begin);
      softmax_sums();
      if (has(c_.dx) || has(c_.dweight)) gradients();
    }
    store_loss(c_.losses, factor_, c_.loss);
  }

 private:
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
    for (std::int64_t r = 0; r < rows_; ++r) put(r, {});
    for_tiles([&](std::int64_t v, std::int64_t n) {
      multiply(Tile(c_, begin_, rows_, v, n).logits());
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
    for_tiles([&](std::int64_t v, std::int64_t n) {
      for_rows([&](std::int64_t r) {
        T* tile = logits(r) + v;
        if (ignored(r)) {
          std::fill(tile, tile + n, T{0});
        } else {
          softmax_gradient(tile, v, n, get(r), target(r), factor_, tile);
        }
      });
      const Tile tile(c_, begin_, rows_, v, n);
      if (has(c_.dx)) multiply(tile.dx());
      if (has(c_.dweight)) multiply(tile.dweight());
    });
  }

  void multiply(const Product& p) const { gemm_cpu(p.a, p.b, p.c, p.accumulate, c_.scratch); }
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

// First, second and last chunk and tile: no other has other sizes, or adds where these do not.
std::size_t linear_cross_entropy_scratch(const LinearCrossEntropyCall& call, Device device) {
  if (device.kernels() != DeviceType::cpu) return 0;
  std::size_t bytes = 0;
  const std::int64_t count = call.x.size(0), vocab = call.weight.size(0);
  for_three(count, call.logits.size(0), [&](std::int64_t row, std::int64_t rows) {
    for_three(vocab, kTileColumns, [&](std::int64_t word, std::int64_t columns) {
      const auto take = [&](const Product& p) {
        bytes = std::max(bytes, gemm_cpu_scratch(p.a, p.b, p.c, p.accumulate));
      };
      const Tile tile(call, row, rows, word, columns);
      take(tile.logits());
      if (has(call.dx)) take(tile.dx());
      if (has(call.dweight)) take(tile.dweight());
    });
  });
  return bytes;
}

extern const LinearCrossEntropyKernels linear_cross_entropy_cpu{run, scale, add_scaled};

}  // namespace duet
