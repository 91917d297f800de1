// Sums in double over fixed blocks: a float result is right to its last bit or two at any length.
#include <array>

#include "ops/reduce/reduce.h"
#include "runtime/cpu/parallel.h"
#include "runtime/strided.h"

namespace duet {
namespace {

constexpr int kLanes = 8;
constexpr std::int64_t kColumns = 128;    // outputs a piece owns when columns are added up
constexpr std::int64_t kBlock = 1 << 15;  // elements of one partial sum of a long row
constexpr int kMaxBlocks = 256;

// Independent lanes: no chain of additions to wait for, and smaller rounding errors.
template <class T>
double sum_row(const T* x, std::int64_t n, std::int64_t step) {
  std::array<double, kLanes> lanes{};
  std::int64_t i = 0;
  if (step == 1) {
    for (; i + kLanes <= n; i += kLanes) {
      for (int k = 0; k < kLanes; ++k) lanes[static_cast<std::size_t>(k)] += x[i + k];
    }
  }
  for (; i < n; ++i) lanes[static_cast<std::size_t>(i % kLanes)] += x[i * step];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// All of a strided block.
template <class T>
double sum_all(const T* x, const Shape& shape, const Strides& strides) {
  double sum = 0;
  for_each_row<1>(shape, {strides}, [&](auto offset, std::int64_t n, auto step) {
    for (std::int64_t begin = 0; begin < n; begin += kBlock) {
      sum += sum_row(x + offset[0] + begin * step[0], std::min(kBlock, n - begin), step[0]);
    }
  });
  return sum;
}

// The dims of x in two groups.
struct Split {
  Shape kept, reduced;
  Strides kept_strides, reduced_strides;
};

Split split(const ConstView& x, int kept) {
  Split s;
  for (int d = 0; d < x.ndim(); ++d) {
    (d < kept ? s.kept : s.reduced).push_back(x.shape[d]);
    (d < kept ? s.kept_strides : s.reduced_strides).push_back(x.strides[d]);
  }
  return s;
}

// Offset in x of output `i`.
std::int64_t offset_of(const Split& s, std::int64_t i) {
  std::int64_t offset = 0;
  for (int d = s.kept.ndim() - 1; d >= 0; --d) {
    offset += i % s.kept[d] * s.kept_strides[d];
    i /= s.kept[d];
  }
  return offset;
}

// One output from a long contiguous block: partial sums in parallel, added in order.
template <class T>
double sum_long(const T* x, std::int64_t n) {
  std::array<double, kMaxBlocks> partial{};
  const std::int64_t block = std::max(kBlock, (n + kMaxBlocks - 1) / kMaxBlocks);
  parallel_for(n, block, [&](std::int64_t begin, std::int64_t end) {
    partial[static_cast<std::size_t>(begin / block)] = sum_row(x + begin, end - begin, 1);
  });
  double sum = 0;
  for (const double p : partial) sum += p;
  return sum;
}

template <class T>
void sum_rows(const T* x, T* y, const Split& s) {
  const std::int64_t n = s.reduced.numel();
  const bool dense = s.reduced_strides == contiguous_strides(s.reduced);
  if (s.kept.numel() == 1 && dense) {
    y[0] = static_cast<T>(sum_long(x, n));
    return;
  }
  const std::int64_t grain = std::max<std::int64_t>(1, kBlock / std::max<std::int64_t>(n, 1));
  parallel_for(s.kept.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      y[i] = static_cast<T>(sum_all(x + offset_of(s, i), s.reduced, s.reduced_strides));
    }
  });
}

// The outputs lie side by side in x: whole rows are added to a strip of accumulators.
template <class T>
void sum_columns(const T* x, T* y, const Split& s) {
  const std::int64_t width = s.kept.back();
  const std::int64_t strips = (width + kColumns - 1) / kColumns;
  parallel_chunks(s.kept.numel() / width * strips, [&](std::int64_t chunk) {
    const std::int64_t row = chunk / strips * width;
    const std::int64_t begin = chunk % strips * kColumns;
    const std::int64_t n = std::min(kColumns, width - begin);
    const T* base = x + offset_of(s, row) + begin;
    std::array<double, kColumns> sums{};
    for_each_row<1>(s.reduced, {s.reduced_strides}, [&](auto offset, std::int64_t m, auto step) {
      for (std::int64_t r = 0; r < m; ++r) {
        const T* line = base + offset[0] + r * step[0];
        for (std::int64_t j = 0; j < n; ++j) sums[static_cast<std::size_t>(j)] += line[j];
      }
    });
    for (std::int64_t j = 0; j < n; ++j) {
      y[row + begin + j] = static_cast<T>(sums[static_cast<std::size_t>(j)]);
    }
  });
}

void sum(ConstView x, View y, View) {
  if (y.numel() == 0) return;
  const Split s = split(x, y.ndim());
  visit_floating(x.dtype, "sum", [&]<class T>(TypeTag<T>) {
    const bool columns = !s.kept.empty() && s.kept.back() > 1 && s.kept_strides.back() == 1;
    columns ? sum_columns(x.as<T>(), y.as<T>(), s) : sum_rows(x.as<T>(), y.as<T>(), s);
  });
}

}  // namespace

extern const ReduceKernels reduce_cpu{sum};

}  // namespace duet
