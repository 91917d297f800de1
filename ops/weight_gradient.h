// Gradients of small weights that many rows share (norm weights, coupling nets). The rows are cut
// into a fixed number of chunks; each chunk sums its share into its own part of a workspace, and
// the parts are added in order: the same bits for any number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "autograd/node.h"
#include "runtime/cpu/parallel.h"

namespace duet {

// Rows [i * size, min(rows, (i + 1) * size)) are chunk i. Depends on the number of rows alone.
struct RowChunks {
  std::int64_t rows, size, count;

  RowChunks(std::int64_t n, std::int64_t min_size, std::int64_t max_count)
      : rows(n),
        size(std::max(min_size, (n + max_count - 1) / max_count)),
        count((n + size - 1) / size) {}
  std::int64_t begin(std::int64_t chunk) const { return chunk * size; }
  std::int64_t end(std::int64_t chunk) const { return std::min(rows, (chunk + 1) * size); }
};

// Where the gradient of one input goes: the leaf's own buffer, to add into; a new tensor; or
// nowhere, when nobody asked.
struct WeightGradient {
  Tensor tensor;
  bool add = false;

  WeightGradient(const GradRequest& request, std::size_t input, const Tensor& weight) {
    if (!request.needed(input)) return;
    const Tensor& buffer = request.accumulator(input);
    add = buffer.defined() && buffer.is_contiguous() && buffer.dtype() == weight.dtype();
    tensor = add ? buffer : Tensor::empty(weight.shape(), weight.dtype(), weight.device());
  }
  bool needed() const { return tensor.defined(); }
  View view() { return needed() ? tensor.mutable_view() : View{}; }
};

// A new gradient tensor like `t`, or an undefined one when nobody asked for it.
inline Tensor empty_gradient(const GradRequest& request, std::size_t input, const Tensor& t) {
  return request.needed(input) ? Tensor::empty(t.shape(), t.dtype(), t.device()) : Tensor();
}
// Whether any of the first n inputs needs one.
inline bool any_needed(const GradRequest& request, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    if (request.needed(i)) return true;
  }
  return false;
}
// The view a kernel gets of an output that may be unwanted: then its data is null.
inline View view_or_null(Tensor& t) { return t.defined() ? t.mutable_view() : View{}; }

// out[j] = (add ? out[j] : 0) + sum over c of parts[c * n + j], in the order of c.
template <class T>
void sum_parts(const T* parts, std::int64_t count, std::int64_t n, T* out, bool add) {
  parallel_for(n, 1024, [&](std::int64_t begin, std::int64_t end) {
    if (!add) std::fill(out + begin, out + end, T{0});
    for (std::int64_t c = 0; c < count; ++c) {
      const T* part = parts + c * n;
      for (std::int64_t j = begin; j < end; ++j) out[j] += part[j];
    }
  });
}

}  // namespace duet
