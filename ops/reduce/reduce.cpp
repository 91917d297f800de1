// sum and mean. Their gradient is the incoming one, expanded over the reduced dims: a view.
#include "ops/reduce/reduce.h"

#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "ops/ops.h"
#include "runtime/kernel_table.h"

namespace duet {
namespace {

constexpr KernelTable<ReduceKernels> kernels{"sum", &reduce_cpu, DUET_CUDA_TABLE(reduce_cuda)};

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
  const std::int64_t count =
      x.device().kernels() == DeviceType::cuda ? cuda_sum_parts(permuted.view(), kept.ndim()) : 1;
  Tensor parts;
  if (count > 1) parts = Tensor::empty({y.numel(), count}, DType::f64, x.device());
  kernels.launch(x.device(), &ReduceKernels::sum, permuted.view(), y.mutable_view(),
                 count > 1 ? parts.mutable_view() : View{});
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
  Tensor backward(const Saved&, const Tensor& dy) const { return expanded(dy); }
  Tensor differentiable_backward(const Saved&, const Tensor& dy) const;

  Tensor expanded(const Tensor& dy) const {
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

// The backward of sum as an op of its own: its backward is sum again.
struct Expand {
  static constexpr const char* name = "sum";
  struct Saved {};
  Sum sum;

  Tensor forward(Saved&, const Tensor& dy) const { return sum.expanded(dy); }
  Tensor backward(const Saved&, const Tensor& g) const {
    Sum::Saved nothing;
    return sum.forward(nothing, g);
  }
  Tensor differentiable_backward(const Saved&, const Tensor& g) const { return apply(sum, g); }
};

Tensor Sum::differentiable_backward(const Saved&, const Tensor& dy) const {
  return apply(Expand{*this}, dy);
}

// The dims of `from` in which `shape` was broadcast.
DimMask broadcast_dims(const Shape& from, const Shape& shape) {
  DimMask reduced{};
  const int extra = from.ndim() - shape.ndim();
  for (int d = 0; d < from.ndim(); ++d) {
    reduced[static_cast<std::size_t>(d)] = d < extra || (shape[d - extra] == 1 && from[d] != 1);
  }
  return reduced;
}

DimMask all_dims() {
  DimMask mask;
  mask.fill(true);
  return mask;
}

}  // namespace

Tensor sum_to(const Tensor& dy, const Shape& shape) {
  if (dy.shape() == shape) return dy;
  return sum_over(dy, broadcast_dims(dy.shape(), shape)).reshape_view(shape);
}

Tensor differentiable_sum_to(const Tensor& dy, const Shape& shape) {
  if (dy.shape() == shape) return dy;
  return reshape(apply(Sum{dy.shape(), broadcast_dims(dy.shape(), shape), false}, dy), shape);
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
