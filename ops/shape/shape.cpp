// reshape, transpose, slice, split, cat, contiguous. The views cost nothing; their gradients are
// views too.
#include <algorithm>
#include <optional>
#include <string>

#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "ops/ops.h"
#include "runtime/memory_ops.h"

namespace duet {
namespace {

// Fills in a size of -1 and checks the count of elements.
Shape resolve_shape(const Tensor& x, Shape target) {
  int inferred = -1;
  std::int64_t known = 1;
  for (int i = 0; i < target.ndim(); ++i) {
    check(target[i] >= -1, ErrorKind::shape, "reshape: a size is negative: got ", target,
          ", expected sizes of 0 or more, and at most one -1");
    if (target[i] == -1) {
      check(inferred < 0, ErrorKind::shape, "reshape: more than one size is -1: got ", target,
            ", expected at most one");
      inferred = i;
    } else {
      known *= target[i];
    }
  }
  if (inferred >= 0) {
    check(known > 0 && x.numel() % known == 0, ErrorKind::shape,
          "reshape: the size for -1 does not come out whole: got ", x.shape(), " (", x.numel(),
          " elements), expected a multiple of ", known, " for ", target);
    target[inferred] = x.numel() / known;
  }
  check(target.numel() == x.numel(), ErrorKind::shape, "reshape: element counts differ: got ",
        x.shape(), " (", x.numel(), "), expected ", target, " (", target.numel(), ")");
  return target;
}

// Strides that show `x` as `target` without a copy, if there are any: every run of target dims must
// lie within a run of x's dims that are back to back in memory.
std::optional<Strides> view_strides(const Tensor& x, const Shape& target) {
  if (x.numel() == 0) return contiguous_strides(target);
  // x's dims merged into runs: sizes and the stride of the innermost.
  Dims sizes, steps;
  for (int d = 0; d < x.ndim(); ++d) {
    if (x.shape()[d] == 1) continue;
    const int last = sizes.ndim() - 1;
    if (last >= 0 && steps[last] == x.strides()[d] * x.shape()[d]) {
      sizes[last] *= x.shape()[d];
      steps[last] = x.strides()[d];
    } else {
      sizes.push_back(x.shape()[d]);
      steps.push_back(x.strides()[d]);
    }
  }
  Strides strides = Dims::filled(target.ndim(), 1);
  int run = sizes.ndim() - 1;
  std::int64_t inside = 1;  // elements of the run that the target dims so far cover
  for (int d = target.ndim() - 1; d >= 0; --d) {
    if (target[d] == 1) continue;
    if (inside == sizes[run]) {
      --run;
      inside = 1;
    }
    if (sizes[run] % (inside * target[d]) != 0) return std::nullopt;
    strides[d] = steps[run] * inside;
    inside *= target[d];
  }
  return strides;
}

Tensor reshaped(const Tensor& x, const Shape& target) {
  if (const std::optional<Strides> strides = view_strides(x, target)) {
    return x.as_strided(target, *strides, x.offset());
  }
  return clone(x).reshape_view(target);
}

struct Reshape {
  static constexpr const char* name = "reshape";
  struct Saved {};
  Shape from, to;
  Tensor forward(Saved&, const Tensor& x) const { return reshaped(x, to); }
  // dx = dy, in x's shape
  Tensor backward(const Saved&, const Tensor& dy) const { return reshaped(dy, from); }
  Tensor differentiable_backward(const Saved&, const Tensor& dy) const {
    return apply(Reshape{to, from}, dy);
  }
};

struct Transpose {
  static constexpr const char* name = "transpose";
  struct Saved {};
  int a, b;
  Tensor forward(Saved&, const Tensor& x) const { return x.transpose_view(a, b); }
  // dx = dy^T
  Tensor backward(const Saved&, const Tensor& dy) const { return dy.transpose_view(a, b); }
  Tensor differentiable_backward(const Saved&, const Tensor& dy) const {
    return apply(Transpose{a, b}, dy);
  }
};

struct Slice {
  static constexpr const char* name = "slice";
  struct Saved {};
  Shape from;
  int dim;
  std::int64_t begin, end, step;
  Tensor forward(Saved&, const Tensor& x) const { return x.slice_view(dim, begin, end, step); }
  // dx = 0 outside the window, dy inside. Adds into the buffer of a leaf or of another slice.
  Tensor backward(const Saved&, const Tensor& dy, const GradRequest& request) const {
    const Tensor& buffer = request.accumulator(0);
    Tensor dx = buffer.defined() ? buffer : Tensor::zeros(from, dy.dtype(), dy.device());
    Tensor window = dx.slice_view(dim, begin, end, step);
    buffer.defined() ? accumulate(window, dy) : copy(window, dy);
    return dx;
  }
  Tensor differentiable_backward(const Saved&, const Tensor& dy) const;
};

// The backward of slice as an op of its own: its backward is slice again.
struct Unslice {
  static constexpr const char* name = "slice";
  struct Saved {};
  Slice slice;
  Tensor forward(Saved&, const Tensor& dy) const {
    Tensor dx = Tensor::zeros(slice.from, dy.dtype(), dy.device());
    Tensor window = dx.slice_view(slice.dim, slice.begin, slice.end, slice.step);
    copy(window, dy);
    return dx;
  }
  Tensor backward(const Saved&, const Tensor& g) const {
    return g.slice_view(slice.dim, slice.begin, slice.end, slice.step);
  }
  Tensor differentiable_backward(const Saved&, const Tensor& g) const { return apply(slice, g); }
};

Tensor Slice::differentiable_backward(const Saved&, const Tensor& dy) const {
  return apply(Unslice{*this}, dy);
}

template <std::size_t N>
struct Split {
  static constexpr const char* name = "split";
  struct Saved {};
  Shape from;
  int dim;
  std::array<std::int64_t, N> sizes;

  std::array<Tensor, N> forward(Saved&, const Tensor& x) const {
    std::array<Tensor, N> parts;
    std::int64_t at = 0;
    for (std::size_t i = 0; i < N; at += sizes[i++]) {
      parts[i] = x.slice_view(dim, at, at + sizes[i]);
    }
    return parts;
  }
  // dx = the parts' gradients side by side, each written once
  Tensor backward(const Saved&, const std::vector<Tensor>& dy) const {
    const auto any =
        std::find_if(dy.begin(), dy.end(), [](const Tensor& part) { return part.defined(); });
    Tensor dx = Tensor::empty(from, any->dtype(), any->device());
    std::int64_t at = 0;
    for (std::size_t i = 0; i < N; at += sizes[i++]) {
      Tensor window = dx.slice_view(dim, at, at + sizes[i]);
      dy[i].defined() ? copy(window, dy[i]) : fill(window, 0);
    }
    return dx;
  }
  Tensor differentiable_backward(const Saved&, const std::vector<Tensor>& dy) const {
    const auto any =
        std::find_if(dy.begin(), dy.end(), [](const Tensor& part) { return part.defined(); });
    std::vector<Tensor> parts = dy;
    for (std::size_t i = 0; i < N; ++i) {
      Shape shape = from;
      shape[dim] = sizes[i];
      if (!dy[i].defined()) parts[i] = Tensor::zeros(shape, any->dtype(), any->device());
    }
    return cat(parts, dim);
  }
};

template <std::size_t N>
std::array<Tensor, N> split_into(const Tensor& x, int dim,
                                 const std::array<std::int64_t, N>& sizes) {
  check_defined("split", {{"x", x}});
  const int d = normalize_dim(dim, x.ndim(), "split");
  bool fits = true;
  std::int64_t total = 0;
  std::string words;
  for (std::size_t i = 0; i < N; ++i) {
    fits = fits && sizes[i] >= 0;
    total += sizes[i];
    words += concat(i == 0 ? "" : (i + 1 < N ? ", " : " and "), sizes[i]);
  }
  check(fits && total == x.size(d), ErrorKind::shape, "split: the sizes do not fit: got ", words,
        ", expected parts of dim ", d, " of ", x.shape());
  return apply(Split<N>{x.shape(), d, sizes}, x);
}

struct Cat {
  static constexpr const char* name = "cat";
  struct Saved {};
  int dim;
  std::vector<std::int64_t> sizes;  // of each part along dim

  Tensor forward(Saved&, const std::vector<Tensor>& parts) const {
    Shape shape = parts[0].shape();
    shape[dim] = 0;
    for (const std::int64_t n : sizes) shape[dim] += n;
    Tensor y = Tensor::empty(shape, parts[0].dtype(), parts[0].device());
    std::int64_t at = 0;
    for (std::size_t i = 0; i < parts.size(); at += sizes[i++]) {
      Tensor window = y.slice_view(dim, at, at + sizes[i]);
      copy(window, parts[i]);
    }
    return y;
  }
  // d(part) = its window of dy
  std::vector<Tensor> backward(const Saved&, const Tensor& dy) const {
    std::vector<Tensor> grads;
    std::int64_t at = 0;
    for (const std::int64_t n : sizes) {
      grads.push_back(dy.slice_view(dim, at, at + n));
      at += n;
    }
    return grads;
  }
  std::vector<Tensor> differentiable_backward(const Saved&, const Tensor& dy) const {
    std::vector<Tensor> grads;
    std::int64_t at = 0;
    for (const std::int64_t n : sizes) {
      grads.push_back(slice(dy, dim, at, at + n));
      at += n;
    }
    return grads;
  }
};

struct Contiguous {
  static constexpr const char* name = "contiguous";
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const { return clone(x); }
  Tensor backward(const Saved&, const Tensor& dy) const { return dy; }  // dx = dy
  Tensor differentiable_backward(const Saved&, const Tensor& dy) const { return dy; }
};

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape) {
  check_defined("reshape", {{"x", x}});
  return apply(Reshape{x.shape(), resolve_shape(x, shape)}, x);
}

Tensor transpose(const Tensor& x, int a, int b) {
  check_defined("transpose", {{"x", x}});
  return apply(
      Transpose{normalize_dim(a, x.ndim(), "transpose"), normalize_dim(b, x.ndim(), "transpose")},
      x);
}

Tensor slice(const Tensor& x, int dim, std::int64_t begin, std::int64_t end, std::int64_t step) {
  check_defined("slice", {{"x", x}});
  return apply(Slice{x.shape(), normalize_dim(dim, x.ndim(), "slice"), begin, end, step}, x);
}

std::array<Tensor, 2> split(const Tensor& x, int dim, const std::array<std::int64_t, 2>& sizes) {
  return split_into(x, dim, sizes);
}

std::array<Tensor, 3> split(const Tensor& x, int dim, const std::array<std::int64_t, 3>& sizes) {
  return split_into(x, dim, sizes);
}

Tensor cat(const std::vector<Tensor>& parts, int dim) {
  check(!parts.empty(), ErrorKind::shape, "cat: got no parts, expected at least one");
  check_defined("cat", {{"parts[0]", parts[0]}});
  Cat op{normalize_dim(dim, parts[0].ndim(), "cat"), {}};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check_defined("cat", {{"parts[0]", parts[0]}, {"a part", parts[i]}});
    check(parts[i].dtype() == parts[0].dtype(), ErrorKind::dtype, "cat: dtypes differ: parts[", i,
          "] is ", parts[i].dtype(), ", parts[0] is ", parts[0].dtype(), "; convert one of them");
    Shape shape = parts[i].shape();
    const bool same_rank = shape.ndim() == parts[0].ndim();
    if (same_rank) {
      op.sizes.push_back(shape[op.dim]);
      shape[op.dim] = parts[0].shape()[op.dim];
    }
    check(same_rank && shape == parts[0].shape(), ErrorKind::shape, "cat: parts[", i, "] is ",
          parts[i].shape(), ", parts[0] is ", parts[0].shape(),
          "; expected equal sizes but in dim ", op.dim);
  }
  return apply_list(std::move(op), parts);
}

Tensor contiguous(const Tensor& x) {
  check_defined("contiguous", {{"x", x}});
  return x.is_contiguous() ? x : apply(Contiguous{}, x);
}

}  // namespace duet
