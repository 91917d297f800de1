#include "ops/rms_norm/rms_norm.h"

#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "ops/ops.h"
#include "ops/pointwise/rsqrt.h"
#include "ops/reduce/reduce.h"
#include "runtime/kernel_table.h"
#include "runtime/memory_ops.h"

namespace duet {
namespace {

constexpr KernelTable<RmsNormKernels> kernels{"rms_norm", &rms_norm_cpu,
                                              DUET_CUDA_TABLE(rms_norm_cuda)};

struct RmsNorm {
  static constexpr const char* name = "rms_norm";
  struct Saved {
    SavedTensor x, weight;  // r is computed again: the row is read in backward anyway
  };
  double eps;

  // y = x r w,  r = 1 / sqrt(mean(x^2) + eps)
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight) const {
    saved.x.save_input(x);
    saved.weight.save_input(weight);
    Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    kernels.launch(x.device(), &RmsNormKernels::forward, contiguous_copy(x).view(),
                   contiguous_copy(weight).view(), eps, y.mutable_view());
    return y;
  }

  // With n = x r and g = dy w:
  //   dx = r (g - n mean(g n)),   dw = sum over rows of dy n
  std::array<Tensor, 2> backward(const Saved& saved, const Tensor& dy,
                                 const GradRequest& request) const {
    const Tensor x = contiguous_copy(saved.x.get(name));
    const Tensor weight = contiguous_copy(saved.weight.get(name));
    Tensor dx = empty_gradient(request, 0, x);
    WeightGradient dweight(request, 1, weight);
    Tensor parts;
    if (dweight.needed()) {
      const std::int64_t width = weight.size(0);
      const std::int64_t rows = width > 0 ? x.numel() / width : 0;
      parts = Tensor::empty({rms_norm_chunks(rows, x.device().type).count, width}, x.dtype(),
                            x.device());
    }
    kernels.launch(x.device(), &RmsNormKernels::backward, x.view(), weight.view(),
                   contiguous_copy(dy).view(), eps, view_or_null(dx), view_or_null(parts),
                   dweight.view(), dweight.add);
    return {dx, dweight.tensor};
  }
  std::array<Tensor, 2> differentiable_backward(const Saved& saved, const Tensor& dy,
                                                const GradRequest& request) const {
    const Tensor x = saved.x.with_edge(name);
    const Tensor weight = saved.weight.with_edge(name);
    const Tensor r = rsqrt(row_mean(mul(x, x)), eps);
    const Tensor n = mul(x, r);
    std::array<Tensor, 2> grads;
    if (request.needed(0)) {
      const Tensor g = mul(dy, weight);
      grads[0] = mul(r, sub(g, mul(n, row_mean(mul(g, n)))));
    }
    if (request.needed(1)) grads[1] = differentiable_sum_to(mul(dy, n), weight.shape());
    return grads;
  }
};

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  check_inputs("rms_norm", {{"x", x}, {"weight", weight}});
  check(x.ndim() >= 1, ErrorKind::shape, "rms_norm: x has no dimension to normalise: got ",
        x.shape(), ", expected [..., C]");
  check(weight.shape() == Shape{x.size(-1)}, ErrorKind::shape, "rms_norm: weight is ",
        weight.shape(), ", expected ", Shape{x.size(-1)}, ", the last size of x ", x.shape());
  check(eps >= 0, ErrorKind::usage, "rms_norm: eps is ", eps, ", expected 0 or more");
  return apply(RmsNorm{eps}, x, weight);
}

}  // namespace duet
