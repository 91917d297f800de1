#include "runtime/random.h"

#include <cmath>
#include <numbers>

#include "runtime/cpu/parallel.h"
#include "runtime/memory_ops.h"
#include "runtime/tensor.h"

namespace duet {
namespace {

// In [0, 1), a multiple of 2^-53.
double uniform53(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32 | low) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

// Calls store(i, u0, u1) with two uniform doubles in [0, 1) for each pair of elements (i, i+1): the
// numbers follow from i alone, so threads may share the work.
template <class Store>
void for_each_pair(std::int64_t n, const RandomKey& key, Store&& store) {
  constexpr std::int64_t kGrain = 1 << 13;  // pairs; a few tenths of a millisecond
  parallel_for((n + 1) / 2, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t pair = begin; pair < end; ++pair) {
      std::uint32_t word[4];
      random_block(key, static_cast<std::uint32_t>(pair), word);
      store(2 * pair, uniform53(word[0], word[1]), uniform53(word[2], word[3]));
    }
  });
}

void check_fillable(const char* op, const Tensor& out) {
  check(out.is_contiguous(), ErrorKind::shape, op, ": the tensor has gaps: shape ", out.shape(),
        ", strides ", out.strides(), "; fill a contiguous one");
  constexpr std::int64_t kMost = std::int64_t{1} << 33;  // two elements per block of the stream
  check(out.numel() <= kMost, ErrorKind::shape, op, ": the tensor outgrows its stream: got ",
        out.numel(), " elements, expected at most ", kMost,
        "; fill it in parts, each with its key");
}

// Drawn on the host for every device: the same numbers to the last bit.
template <class Fill>
void on_host(Tensor& out, Fill&& fill) {
  Tensor host = Tensor::empty(out.shape(), out.dtype());
  fill(host);
  copy(out, host);
}

}  // namespace

void fill_normal(Tensor& out, const RandomKey& key, double mean, double stddev) {
  check_fillable("fill_normal", out);
  if (out.device().type == DeviceType::cuda) {
    return on_host(out, [&](Tensor& t) { fill_normal(t, key, mean, stddev); });
  }
  const View view = out.mutable_view();
  if (out.device().type == DeviceType::meta) return;
  visit_floating(out.dtype(), "fill_normal", [&]<class T>(TypeTag<T>) {
    T* p = view.as<T>();
    const std::int64_t n = view.numel();
    for_each_pair(n, key, [&](std::int64_t i, double u0, double u1) {
      const double radius = std::sqrt(-2.0 * std::log(1.0 - u0));  // 1 - u0 lies in (0, 1]
      const double angle = 2.0 * std::numbers::pi * u1;
      p[i] = static_cast<T>(mean + stddev * radius * std::cos(angle));
      if (i + 1 < n) p[i + 1] = static_cast<T>(mean + stddev * radius * std::sin(angle));
    });
  });
}

void fill_uniform(Tensor& out, const RandomKey& key, double low, double high) {
  check_fillable("fill_uniform", out);
  if (out.device().type == DeviceType::cuda) {
    return on_host(out, [&](Tensor& t) { fill_uniform(t, key, low, high); });
  }
  const View view = out.mutable_view();
  if (out.device().type == DeviceType::meta) return;
  visit_floating(out.dtype(), "fill_uniform", [&]<class T>(TypeTag<T>) {
    T* p = view.as<T>();
    const std::int64_t n = view.numel();
    for_each_pair(n, key, [&](std::int64_t i, double u0, double u1) {
      p[i] = static_cast<T>(low + (high - low) * u0);
      if (i + 1 < n) p[i + 1] = static_cast<T>(low + (high - low) * u1);
    });
  });
}

}  // namespace duet
