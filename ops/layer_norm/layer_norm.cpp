#include "ops/layer_norm/layer_norm.h"

#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "ops/ops.h"
#include "ops/pointwise/rsqrt.h"
#include "ops/reduce/reduce.h"
#include "runtime/kernel_table.h"
#include "runtime/memory_ops.h"

namespace duet {
namespace {

constexpr KernelTable<LayerNormKernels> kernels{"layer_norm", &layer_norm_cpu,
                                                DUET_CUDA_TABLE(layer_norm_cuda)};

struct LayerNorm {
  static constexpr const char* name = "layer_norm";
  struct Saved {
    SavedTensor x, weight;  // m and r are computed again: the row is read in backward anyway
  };
  double eps;
  bool has_bias;

  // y = (x - m) r w + b,  m = mean(x),  r = 1 / sqrt(mean((x - m)^2) + eps)
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    saved.x.save_input(x);
    saved.weight.save_input(weight);
    const Tensor plain_bias = has_bias ? contiguous_copy(bias) : Tensor();
    Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    kernels.launch(x.device(), &LayerNormKernels::forward, contiguous_copy(x).view(),
                   contiguous_copy(weight).view(), has_bias ? plain_bias.view() : ConstView{}, eps,
                   y.mutable_view());
    return y;
  }

  // With n = (x - m) r and g = dy w:
  //   dx = r (g - mean(g) - n mean(g n)),   dw = sum over rows of dy n,   db = sum over rows of dy
  std::array<Tensor, 3> backward(const Saved& saved, const Tensor& dy,
                                 const GradRequest& request) const {
    const Tensor x = contiguous_copy(saved.x.get(name));
    const Tensor weight = contiguous_copy(saved.weight.get(name));
    const std::int64_t width = weight.size(0);
    const std::int64_t rows = width > 0 ? x.numel() / width : 0;
    const Shape parts_shape{layer_norm_chunks(rows, x.device().type).count, width};
    Tensor dx = empty_gradient(request, 0, x);
    WeightGradient dweight(request, 1, weight);
    WeightGradient dbias(request, 2, weight);
    Tensor dweight_parts, dbias_parts;
    if (dweight.needed()) dweight_parts = Tensor::empty(parts_shape, x.dtype(), x.device());
    if (dbias.needed()) dbias_parts = Tensor::empty(parts_shape, x.dtype(), x.device());
    kernels.launch(x.device(), &LayerNormKernels::backward, x.view(), weight.view(),
                   contiguous_copy(dy).view(), eps, view_or_null(dx), view_or_null(dweight_parts),
                   dweight.view(), dweight.add, view_or_null(dbias_parts), dbias.view(), dbias.add);
    return {dx, dweight.tensor, dbias.tensor};
  }
  std::array<Tensor, 3> differentiable_backward(const Saved& saved, const Tensor& dy,
                                                const GradRequest& request) const {
    const Tensor x = saved.x.with_edge(name);
    const Tensor weight = saved.weight.with_edge(name);
    const Tensor centred = sub(x, row_mean(x));
    const Tensor r = rsqrt(row_mean(mul(centred, centred)), eps);
    const Tensor n = mul(centred, r);
    std::array<Tensor, 3> grads;
    if (request.needed(0)) {
      const Tensor g = mul(dy, weight);
      grads[0] = mul(r, sub(sub(g, row_mean(g)), mul(n, row_mean(mul(g, n)))));
    }
    if (request.needed(1)) grads[1] = differentiable_sum_to(mul(dy, n), weight.shape());
    if (request.needed(2)) grads[2] = differentiable_sum_to(dy, weight.shape());
    return grads;
  }
};

void check_size(const char* what, const Tensor& x, const Tensor& parameter) {
  check(parameter.shape() == Shape{x.size(-1)}, ErrorKind::shape, "layer_norm: ", what, " is ",
        parameter.shape(), ", expected ", Shape{x.size(-1)}, ", the last size of x ", x.shape());
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  check_inputs("layer_norm", {{"x", x}, {"weight", weight}});
  if (bias.defined()) check_inputs("layer_norm", {{"x", x}, {"bias", bias}});
  check(x.ndim() >= 1, ErrorKind::shape, "layer_norm: x has no dimension to normalise: got ",
        x.shape(), ", expected [..., C]");
  check_size("weight", x, weight);
  if (bias.defined()) check_size("bias", x, bias);
  check(eps >= 0, ErrorKind::usage, "layer_norm: eps is ", eps, ", expected 0 or more");
  return apply(LayerNorm{eps, bias.defined()}, x, weight, bias);
}

}  // namespace duet
