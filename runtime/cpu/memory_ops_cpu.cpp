#include <algorithm>
#include <cstring>

#include "runtime/convert.h"
#include "runtime/cpu/parallel.h"
#include "runtime/memory_ops_kernels.h"
#include "runtime/strided.h"

namespace duet {
namespace {

constexpr std::int64_t kGrain = 1 << 15;  // elements; 0.1 MB is well above a thread's start cost

// Calls f(offsets, n, steps) for every row as for_each_row does, on several threads where it pays:
// the longest dimension is cut into pieces.
template <std::size_t kOperands, class F>
void over_rows(const Shape& shape, const std::array<Strides, kOperands>& strides, F&& f) {
  const auto serial = [&](const Shape& part, std::array<std::int64_t, kOperands> start) {
    for_each_row<kOperands>(part, strides, [&](auto offsets, std::int64_t n, auto steps) {
      for (std::size_t k = 0; k < kOperands; ++k) offsets[k] += start[k];
      f(offsets, n, steps);
    });
  };
  const std::int64_t total = shape.numel();
  if (total < 2 * kGrain) return serial(shape, {});
  int widest = 0;  // the dimension that is cut
  for (int d = 1; d < shape.ndim(); ++d) widest = shape[d] > shape[widest] ? d : widest;
  const std::int64_t rows = std::max<std::int64_t>(1, kGrain / (total / shape[widest]));
  parallel_for(shape[widest], rows, [&](std::int64_t begin, std::int64_t end) {
    Shape part = shape;
    part[widest] = end - begin;
    std::array<std::int64_t, kOperands> start;
    for (std::size_t k = 0; k < kOperands; ++k) start[k] = begin * strides[k][widest];
    serial(part, start);
  });
}

void fill(View out, double value) {
  visit_any(out.dtype, [&]<class T>(TypeTag<T>) {
    const T v = convert<T>(value);
    over_rows<1>(out.shape, {out.strides}, [&](auto offset, std::int64_t n, auto step) {
      T* p = out.as<T>() + offset[0];
      if (step[0] == 1) {
        std::fill_n(p, n, v);
      } else {
        for (std::int64_t i = 0; i < n; ++i) p[i * step[0]] = v;
      }
    });
  });
}

void copy(ConstView x, View out) {
  visit_any(x.dtype, [&]<class From>(TypeTag<From>) {
    visit_any(out.dtype, [&]<class To>(TypeTag<To>) {
      over_rows<2>(x.shape, {x.strides, out.strides}, [&](auto offset, std::int64_t n, auto step) {
        const From* px = x.as<From>() + offset[0];
        To* po = out.as<To>() + offset[1];
        if constexpr (std::is_same_v<From, To>) {
          if (step[0] == 1 && step[1] == 1) {
            std::memcpy(po, px, static_cast<std::size_t>(n) * sizeof(To));
            return;
          }
        }
        for (std::int64_t i = 0; i < n; ++i) po[i * step[1]] = convert<To>(px[i * step[0]]);
      });
    });
  });
}

void accumulate(ConstView x, View out) {
  visit_floating(out.dtype, "accumulate", [&]<class T>(TypeTag<T>) {
    over_rows<2>(x.shape, {x.strides, out.strides}, [&](auto offset, std::int64_t n, auto step) {
      const T* px = x.as<T>() + offset[0];
      T* po = out.as<T>() + offset[1];
      if (step[0] == 1 && step[1] == 1) {
        for (std::int64_t i = 0; i < n; ++i) po[i] += px[i];
      } else {
        for (std::int64_t i = 0; i < n; ++i) po[i * step[1]] += px[i * step[0]];
      }
    });
  });
}

}  // namespace

extern const MemoryOpsKernels memory_ops_cpu{fill, copy, accumulate};

}  // namespace duet
