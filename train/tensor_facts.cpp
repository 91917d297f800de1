#include "train/tensor_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime/cpu/parallel.h"
#include "runtime/memory_ops.h"
#include "runtime/nan_sign.h"
#include "runtime/strided.h"

namespace duet {
namespace {

constexpr std::int64_t kGrain = std::int64_t{1} << 16;  // elements a thread is worth starting for

// The bits of T as a signed integer: without the sign, they are ordered as the absolute values are,
// infinity above all numbers and NaN above that.
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::int64_t,
                                  std::conditional_t<sizeof(T) == 4, std::int32_t, std::int16_t>>;

template <class T>
inline constexpr bool is_float =
    std::is_floating_point_v<T> || std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

template <class T>
constexpr BitsOf<T> infinity_bits() {
  if constexpr (std::is_same_v<T, BFloat16>) return 0x7f80;
  if constexpr (std::is_same_v<T, Float16>) return 0x7c00;
  if constexpr (std::is_same_v<T, float>) return 0x7f800000;
  if constexpr (std::is_same_v<T, double>) return 0x7ff0000000000000;
}

template <class T>
BitsOf<T> magnitude(T x) {
  constexpr BitsOf<T> kWithoutSign = std::numeric_limits<BitsOf<T>>::max();
  return static_cast<BitsOf<T>>(std::bit_cast<BitsOf<T>>(x) & kWithoutSign);
}

template <class T>
double to_double(T x) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    return static_cast<double>(static_cast<float>(x));
  } else {
    return static_cast<double>(x);
  }
}

template <class T>
BitsOf<T> largest_magnitude(const T* x, std::int64_t n) {
  const auto of = [x](std::int64_t begin, std::int64_t end) {
    BitsOf<T> most = 0;
    for (std::int64_t i = begin; i < end; ++i) most = std::max(most, magnitude(x[i]));
    return most;
  };
  if (n <= kGrain) return of(0, n);
  std::vector<BitsOf<T>> most(static_cast<std::size_t>((n + kGrain - 1) / kGrain));
  parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    most[static_cast<std::size_t>(begin / kGrain)] = of(begin, end);
  });
  return *std::max_element(most.begin(), most.end());
}

// Element by element, in row-major order.
template <class T>
void look_closely(const T* x, const Strides& strides, TensorFacts& facts) {
  std::int64_t at = 0;
  for_each_row<1>(facts.shape, {strides},
                  [&](const auto& offset, std::int64_t n, const auto& step) {
                    for (std::int64_t i = 0; i < n; ++i, ++at) {
                      const double value = to_double(x[offset[0] + i * step[0]]);
                      if (std::isfinite(value)) {
                        facts.largest = std::max(facts.largest, std::abs(value));
                        continue;
                      }
                      if (facts.bad++ > 0) continue;
                      facts.first = at;
                      facts.first_value = without_nan_sign(value);
                    }
                  });
}

template <class T>
void look_at(const T* x, const Strides& strides, TensorFacts& facts) {
  if constexpr (is_float<T>) {
    if (strides == contiguous_strides(facts.shape)) {
      const BitsOf<T> largest = largest_magnitude(x, facts.shape.numel());
      if (largest < infinity_bits<T>()) {
        facts.largest = to_double(std::bit_cast<T>(largest));
        return;
      }
    }
  }
  look_closely(x, strides, facts);
}

// The stretch of memory that x lies in, on the host. Element 0 is where x begins.
Tensor on_host(const Tensor& x) {
  if (x.device().type == DeviceType::cpu) return x;
  std::int64_t span = 1;
  for (int d = 0; d < x.ndim(); ++d) span += (x.size(d) - 1) * x.stride(d);
  return to_device(x.as_strided({span}, {1}, x.offset()), kCpu);
}

std::string place(const TensorFacts& facts) {
  Dims index = Dims::filled(facts.shape.ndim(), 0);
  std::int64_t rest = facts.first;
  for (int d = facts.shape.ndim() - 1; d >= 0; --d) {
    index[d] = rest % facts.shape[d];
    rest /= facts.shape[d];
  }
  return concat(index);
}

}  // namespace

TensorFacts facts_of(const Tensor& x) {
  TensorFacts facts{x.shape()};
  if (x.numel() == 0 || x.device().type == DeviceType::meta) return facts;
  const Tensor host = on_host(x);
  visit_any(x.dtype(),
            [&]<class T>(TypeTag<T>) { look_at(host.view().as<T>(), x.strides(), facts); });
  return facts;
}

std::string words_of(const TensorFacts& facts) {
  const std::int64_t all = facts.shape.numel();
  return concat(facts.bad, " of ", all, all == 1 ? " element" : " elements",
                facts.bad == 1 ? " is not finite, " : " are not finite, the first, ",
                short_number(facts.first_value), ", at ", place(facts));
}

std::string words_of_non_finite(const std::vector<NamedTensor>& tensors) {
  std::string text;
  std::int64_t others = 0;
  for (const NamedTensor& t : tensors) {
    const TensorFacts facts = facts_of(t.value);
    if (facts.finite()) continue;
    if (text.empty()) {
      text = concat(t.name, ": ", words_of(facts));
    } else {
      ++others;
    }
  }
  if (others > 0) text += concat("; and ", others, others == 1 ? " more tensor" : " more tensors");
  return text;
}

std::string short_number(double value) { return fmt::format("{:.3g}", without_nan_sign(value)); }

}  // namespace duet
