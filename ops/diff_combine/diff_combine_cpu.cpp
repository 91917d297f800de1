// diff_combine on the CPU: one pass over memory each way; plain loops that the compiler vectorises.
#include <algorithm>
#include <array>

#include "ops/diff_combine/diff_combine.h"
#include "runtime/cpu/parallel.h"

namespace duet {
namespace {

constexpr std::int64_t kGrain = 1 << 14;  // elements a thread takes at least

// Row `row` = (b, t, h) of x begins here.
template <class T>
const T* row_of(const ConstView& x, std::int64_t b, std::int64_t t, std::int64_t h) {
  return x.as<T>() + b * x.stride(0) + t * x.stride(1) + h * x.stride(2);
}

// f(row, b, t, h) for every row of a [B, T, H, D]; each is one thread's.
template <class F>
void for_rows(const ConstView& a, F&& f) {
  const std::int64_t times = a.size(1), heads = a.size(2);
  const std::int64_t rows = a.size(0) * times * heads;
  const std::int64_t grain = kGrain / std::max<std::int64_t>(1, a.size(3)) + 1;
  parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      f(row, row / (heads * times), row / heads % times, row % heads);
    }
  });
}

// Eight sums side by side: vectors, and the same order on every machine.
template <class T>
T dot(const T* x, const T* y, std::int64_t n) {
  std::array<T, 8> sums{};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (std::size_t j = 0; j < 8; ++j) {
      sums[j] += x[i + static_cast<std::int64_t>(j)] * y[i + static_cast<std::int64_t>(j)];
    }
  }
  T sum = 0;
  for (; i < n; ++i) sum += x[i] * y[i];
  for (const T s : sums) sum += s;
  return sum;
}

void forward(ConstView a1, ConstView a2, ConstView lambda, View y) {
  visit_floating(y.dtype, "diff_combine", [&]<class T>(TypeTag<T>) {
    const std::int64_t width = a1.size(3);
    for_rows(a1, [&](std::int64_t row, std::int64_t b, std::int64_t t, std::int64_t h) {
      const T *x1 = row_of<T>(a1, b, t, h), *x2 = row_of<T>(a2, b, t, h);
      const T factor = *row_of<T>(lambda, b, t, h);
      T* out = y.as<T>() + row * width;
      for (std::int64_t i = 0; i < width; ++i) out[i] = x1[i] - factor * x2[i];
    });
  });
}

void backward(ConstView a2, ConstView lambda, ConstView dy, View da2, View row_dots) {
  visit_floating(a2.dtype, "diff_combine", [&]<class T>(TypeTag<T>) {
    const std::int64_t width = a2.size(3);
    for_rows(a2, [&](std::int64_t row, std::int64_t b, std::int64_t t, std::int64_t h) {
      const T* g = row_of<T>(dy, b, t, h);
      if (row_dots.data != nullptr) {
        row_dots.as<T>()[row] = -dot(g, row_of<T>(a2, b, t, h), width);
      }
      if (da2.data == nullptr) return;
      const T factor = -*row_of<T>(lambda, b, t, h);
      T* out = da2.as<T>() + row * width;
      for (std::int64_t i = 0; i < width; ++i) out[i] = factor * g[i];
    });
  });
}

}  // namespace

extern const DiffCombineKernels diff_combine_cpu{forward, backward};

}  // namespace duet
