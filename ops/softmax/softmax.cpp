#include "ops/softmax/softmax.h"

#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "ops/ops.h"
#include "runtime/kernel_table.h"
#include "runtime/memory_ops.h"

namespace duet {
namespace {

constexpr KernelTable<SoftmaxKernels> kernels{"softmax", &softmax_cpu,
                                              DUET_CUDA_TABLE(softmax_cuda)};

struct Softmax {
  static constexpr const char* name = "softmax";
  struct Saved {
    SavedTensor y;
  };

  // y = exp(x - max(x)) / sum(exp(x - max(x))). Entries of -inf give exactly 0; a row of nothing
  // else is NaN, as its limit is not defined (attention, which masks, has its own rule).
  Tensor forward(Saved& saved, const Tensor& x) const {
    Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    kernels.launch(x.device(), &SoftmaxKernels::forward, contiguous_copy(x).view(),
                   y.mutable_view());
    saved.y.save_output(y);
    return y;
  }

  // dx = y (dy - <dy, y>), per row
  Tensor backward(const Saved& saved, const Tensor& dy) const {
    const Tensor& y = saved.y.get(name);
    Tensor dx = Tensor::empty(y.shape(), y.dtype(), y.device());
    kernels.launch(y.device(), &SoftmaxKernels::backward, y.view(), contiguous_copy(dy).view(),
                   dx.mutable_view());
    return dx;
  }
  Tensor differentiable_backward(const Saved& saved, const Tensor& dy,
                                 const GradRequest& request) const {
    const Tensor y = request.own_output(saved.y.get(name));
    return mul(y, sub(dy, sum(mul(dy, y), {-1}, /*keepdim=*/true)));
  }
};

}  // namespace

Tensor softmax(const Tensor& x, int dim) {
  check_inputs("softmax", {{"x", x}});
  check(x.ndim() >= 1, ErrorKind::shape, "softmax: x has no dimension: got ", x.shape(),
        ", expected [..., C]");
  check(normalize_dim(dim, x.ndim(), "softmax") == x.ndim() - 1, ErrorKind::index,
        "softmax: dim is not the last one: got ", dim, " of ", x.shape(),
        ", expected -1; transpose the input first");
  return apply(Softmax{}, x);
}

}  // namespace duet
