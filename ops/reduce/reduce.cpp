// sum and mean. Their gradient is the incoming one, expanded over the reduced dims: a view.
#include "ops/reduce/reduce.h"

#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "ops/ops.h"
#include "runtime/kernel_table.h"

namespace duet {
namespace {

constexpr KernelTable<ReduceKernels> kernels{"sum", &reduce_cpu};

// Which dims are added up, by index.
using DimMask = std::array<bool, kMaxDims>;

// y in the kept dims, contiguous.
Tensor sum_over(const Tensor& x, const DimMask& reduced) {
  Shape kept, shape;
  Strides strides;
  for (const bool pass_reduced : {false, true}) {
    for (int d = 0; d < x.ndim(); ++d) {
      if (reduced[static_cast<std::size_t>(d)] != pass_reduced) continue;
      if (!pass_reduced) kept.push_back(x.shape()[d]);
      shape.push_back(x.shape()[d]);
      strides.push_back(x.strides()[d]);
    }
  }
  const Tensor permuted = x.as_strided(shape, strides, x.offset());
  Tensor y = Tensor::empty(kept, x.dtype(), x.device());
  kernels.launch(x.device(), &ReduceKernels::sum, permuted.view(), y.mutable_view());
  return y;
}

struct Sum {
  static constexpr const char* name = "sum";
  struct Saved {};
  Shape from;
  DimMask reduced;
  bool keepdim;

  Tensor forward(Saved&, const Tensor& x) const {
    const Tensor y = sum_over(x, reduced);
    return keepdim ? y.reshape_view(kept_shape()) : y;
  }
  // dx[..., i, ...] = dy[...] for every i of a reduced dim
  Tensor backward(const Saved&, const Tensor& dy) const {
    Strides strides = Dims::filled(from.ndim(), 0);
    int at = 0;
    for (int d = 0; d < from.ndim(); ++d) {
      const bool is_reduced = reduced[static_cast<std::size_t>(d)];
      if (!is_reduced) strides[d] = dy.strides()[at];
      if (!is_reduced || keepdim) ++at;
    }
    return dy.as_strided(from, strides, dy.offset());
  }

 private:
  Shape kept_shape() const {
    Shape shape = from;
    for (int d = 0; d < from.ndim(); ++d) {
      if (reduced[static_cast<std::size_t>(d)]) shape[d] = 1;
    }
    return shape;
  }
};

DimMask all_dims() {
  DimMask mask;
  mask.fill(true);
  return mask;
}

}  // namespace

Tensor sum_to(const Tensor& dy, const Shape& shape) {
  if (dy.shape() == shape) return dy;
  DimMask reduced{};
  const int extra = dy.ndim() - shape.ndim();
  for (int d = 0; d < dy.ndim(); ++d) {
    reduced[static_cast<std::size_t>(d)] =
        d < extra || (shape[d - extra] == 1 && dy.shape()[d] != 1);
  }
  return sum_over(dy, reduced).reshape_view(shape);
}

Tensor sum(const Tensor& x) {
  check_inputs("sum", {{"x", x}});
  return apply(Sum{x.shape(), all_dims(), false}, x);
}

Tensor sum(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  check_inputs("sum", {{"x", x}});
  DimMask reduced{};
  for (const int dim : dims) {
    const int d = normalize_dim(dim, x.ndim(), "sum");
    check(!reduced[static_cast<std::size_t>(d)], ErrorKind::index, "sum: dim ", dim,
          " is named twice; name each dim once");
    reduced[static_cast<std::size_t>(d)] = true;
  }
  return apply(Sum{x.shape(), reduced, keepdim}, x);
}

Tensor mean(const Tensor& x) {
  check_inputs("mean", {{"x", x}});
  check(x.numel() > 0, ErrorKind::shape, "mean: the tensor is empty: got ", x.shape(),
        ", expected at least one element");
  return scale(sum(x), 1.0 / static_cast<double>(x.numel()));
}

}  // namespace duet
