#include "runtime/cpu/memory_ops_cpu.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/cpu/parallel.h"
#include "runtime/strided.h"

namespace duet {
namespace {

constexpr std::int64_t kGrain = 1 << 15;  // elements; 0.1 MB is well above a thread's start cost

// The nearest float towards zero, with its last bit set if that lost anything ("round to odd"):
// rounding it again, to 16 bits, then gives what rounding the double once would.
float to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1U);
}

// Conversions round to nearest, ties to even. To an integer they cut towards zero and saturate; NaN
// becomes 0.
template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_class_v<From>) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (std::is_class_v<To>) {
    return std::is_same_v<From, float> ? To(static_cast<float>(value))
                                       : To(to_odd(static_cast<double>(value)));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    const auto wide = static_cast<double>(value);
    constexpr auto kLow = static_cast<double>(std::numeric_limits<To>::min());
    // NOLINTNEXTLINE(bugprone-integer-division): max is odd, so half of max + 1 is exact
    constexpr double kEnd = 2.0 * static_cast<double>(std::numeric_limits<To>::max() / 2 + 1);
    if (wide >= kEnd) return std::numeric_limits<To>::max();
    return wide > kLow - 1 ? static_cast<To>(wide)
           : wide <= kLow  ? std::numeric_limits<To>::min()
                           : To{};
  } else {
    return static_cast<To>(value);
  }
}

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
