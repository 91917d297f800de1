#include "runtime/cpu/memory_ops_cpu.h"

#include <cstring>

#include "runtime/cpu/parallel.h"
#include "runtime/strided.h"

namespace duet {
namespace {

constexpr std::int64_t kGrain =
    1 << 15;  // elements; about 0.1 MB, well above a thread's start cost

template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_class_v<From>) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (std::is_class_v<To>) {
    return To(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

// Splits the innermost row over threads when it is long, e.g. a contiguous tensor is one row.
template <class F>
void over_row(std::int64_t n, F&& f) {
  n >= 2 * kGrain ? parallel_for(n, kGrain, f) : f(std::int64_t{0}, n);
}

void fill(View out, double value) {
  visit_any(out.dtype, [&]<class T>(TypeTag<T>) {
    const T v = convert<T>(value);
    for_each_row<1>(out.shape, {out.strides}, [&](auto offset, std::int64_t n, auto step) {
      T* p = out.as<T>() + offset[0];
      over_row(n, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) p[i * step[0]] = v;
      });
    });
  });
}

void copy(ConstView x, View out) {
  visit_any(x.dtype, [&]<class From>(TypeTag<From>) {
    visit_any(out.dtype, [&]<class To>(TypeTag<To>) {
      for_each_row<2>(x.shape, {x.strides, out.strides},
                      [&](auto offset, std::int64_t n, auto step) {
                        const From* px = x.as<From>() + offset[0];
                        To* po = out.as<To>() + offset[1];
                        over_row(n, [&](std::int64_t begin, std::int64_t end) {
                          if constexpr (std::is_same_v<From, To>) {
                            if (step[0] == 1 && step[1] == 1) {
                              std::memcpy(po + begin, px + begin,
                                          static_cast<std::size_t>(end - begin) * sizeof(To));
                              return;
                            }
                          }
                          for (std::int64_t i = begin; i < end; ++i) {
                            po[i * step[1]] = convert<To>(px[i * step[0]]);
                          }
                        });
                      });
    });
  });
}

void accumulate(ConstView x, View out) {
  visit_floating(out.dtype, "accumulate", [&]<class T>(TypeTag<T>) {
    for_each_row<2>(x.shape, {x.strides, out.strides}, [&](auto offset, std::int64_t n, auto step) {
      const T* px = x.as<T>() + offset[0];
      T* po = out.as<T>() + offset[1];
      over_row(n, [&](std::int64_t begin, std::int64_t end) {
        if (step[0] == 1 && step[1] == 1) {
          for (std::int64_t i = begin; i < end; ++i) po[i] += px[i];
        } else {
          for (std::int64_t i = begin; i < end; ++i) po[i * step[1]] += px[i * step[0]];
        }
      });
    });
  });
}

}  // namespace

extern const MemoryOpsKernels memory_ops_cpu{fill, copy, accumulate};

}  // namespace duet
