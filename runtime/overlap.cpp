#include "runtime/overlap.h"

#include <array>
#include <cstdlib>
#include <utility>

namespace duet {
namespace {

// The lowest and the highest element that a window with elements reaches.
std::pair<std::int64_t, std::int64_t> reach(const Tensor& t) {
  std::int64_t low = t.offset(), high = t.offset();
  for (int d = 0; d < t.ndim(); ++d) {
    const std::int64_t last = (t.size(d) - 1) * t.stride(d);
    (last < 0 ? low : high) += last;
  }
  return {low, high};
}

}  // namespace

bool overlaps_itself(const Shape& shape, const Strides& strides) {
  if (shape.numel() == 0) return false;
  using Dim = std::pair<std::int64_t, std::int64_t>;  // step, size
  std::array<Dim, kMaxDims> dims{};                   // those with more than one element, sorted
  std::size_t count = 0;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (shape[d] == 1) continue;
    const Dim dim{std::abs(strides[d]), shape[d]};
    std::size_t at = count++;
    for (; at > 0 && dims[at - 1] > dim; --at) dims[at] = dims[at - 1];
    dims[at] = dim;
  }
  std::int64_t reached = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto [step, size] = dims[i];
    if (step <= reached) return true;
    reached += step * (size - 1);
  }
  return false;
}

bool is_same_window(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage() && a.offset() == b.offset() && a.shape() == b.shape() &&
         a.strides() == b.strides();
}

void check_apart(const char* op, const Tensor& out, const Tensor& x) {
  if (out.storage() != x.storage() || out.numel() == 0 || x.numel() == 0) return;
  if (is_same_window(out, x)) return;
  const auto [out_low, out_high] = reach(out);
  const auto [low, high] = reach(x);
  check(out_high < low || high < out_low, ErrorKind::shape, op,
        ": source and destination overlap: got elements ", low, " to ", high,
        " of the storage that is written from ", out_low, " to ", out_high,
        ", expected windows apart; clone the source first");
}

}  // namespace duet
