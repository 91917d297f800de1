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
constexpr KernelTable<LayerNormKernels> add_kernels{"add_layer_norm", &layer_norm_cpu,
                                                    DUET_CUDA_TABLE(layer_norm_cuda)};

ConstView bias_view(const Tensor& bias) { return bias.defined() ? bias.view() : ConstView{}; }

// dx, dweight and dbias of y = (x - m) r w + b, where the inputs before number `at_weight` are what
// x is made of, and x has the gradient dsum (or none) on another way. m and r are computed again:
// the row is read anyway. With n = (x - m) r and g = dy w:
//   dx = dsum + r (g - mean(g) - n mean(g n)),   dw = sum over rows of dy n,
//   db = sum over rows of dy
std::array<Tensor, 3> norm_gradients(const KernelTable<LayerNormKernels>& table, const Tensor& x_in,
                                     const Tensor& weight_in, const Tensor& dsum, const Tensor& dy,
                                     double eps, const GradRequest& request,
                                     std::size_t at_weight) {
  const Tensor x = contiguous_copy(x_in);
  const Tensor weight = contiguous_copy(weight_in);
  const Tensor plain_dsum = dsum.defined() ? contiguous_copy(dsum) : Tensor();
  const std::int64_t width = weight.size(0);
  const std::int64_t rows = width > 0 ? x.numel() / width : 0;
  const Shape parts_shape{layer_norm_chunks(rows, x.device().kernels()).count, width};
  Tensor dx =
      any_needed(request, at_weight) ? Tensor::empty(x.shape(), x.dtype(), x.device()) : Tensor();
  WeightGradient dweight(request, at_weight, weight);
  WeightGradient dbias(request, at_weight + 1, weight);
  Tensor dweight_parts, dbias_parts;
  if (dweight.needed()) dweight_parts = Tensor::empty(parts_shape, x.dtype(), x.device());
  if (dbias.needed()) dbias_parts = Tensor::empty(parts_shape, x.dtype(), x.device());
  table.launch(x.device(), &LayerNormKernels::backward, x.view(), weight.view(),
               dsum.defined() ? plain_dsum.view() : ConstView{}, contiguous_copy(dy).view(), eps,
               view_or_null(dx), view_or_null(dweight_parts), dweight.view(), dweight.add,
               view_or_null(dbias_parts), dbias.view(), dbias.add);
  return {dx, dweight.tensor, dbias.tensor};
}

// The same without dsum, by differentiable ops.
std::array<Tensor, 3> differentiable_gradients(const Tensor& x, const Tensor& weight,
                                               const Tensor& dy, double eps,
                                               const GradRequest& request, std::size_t at_weight) {
  const Tensor centred = sub(x, row_mean(x));
  const Tensor r = rsqrt(row_mean(mul(centred, centred)), eps);
  const Tensor n = mul(centred, r);
  std::array<Tensor, 3> grads;
  if (any_needed(request, at_weight)) {
    const Tensor g = mul(dy, weight);
    grads[0] = mul(r, sub(sub(g, row_mean(g)), mul(n, row_mean(mul(g, n)))));
  }
  if (request.needed(at_weight)) {
    grads[1] = differentiable_sum_to(mul(dy, n), weight.shape());
  }
  if (request.needed(at_weight + 1)) grads[2] = differentiable_sum_to(dy, weight.shape());
  return grads;
}

struct LayerNorm {
  static constexpr const char* name = "layer_norm";
  struct Saved {
    SavedTensor x, weight;
  };
  double eps;

  // y = (x - m) r w + b,  m = mean(x),  r = 1 / sqrt(mean((x - m)^2) + eps)
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    saved.x.save_input(x);
    saved.weight.save_input(weight);
    const Tensor plain_bias = bias.defined() ? contiguous_copy(bias) : Tensor();
    Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    kernels.launch(x.device(), &LayerNormKernels::forward, contiguous_copy(x).view(), ConstView{},
                   contiguous_copy(weight).view(), bias_view(plain_bias), eps, View{},
                   y.mutable_view());
    return y;
  }
  std::array<Tensor, 3> backward(const Saved& saved, const Tensor& dy,
                                 const GradRequest& request) const {
    return norm_gradients(kernels, saved.x.get(name), saved.weight.get(name), {}, dy, eps, request,
                          1);
  }
  std::array<Tensor, 3> differentiable_backward(const Saved& saved, const Tensor& dy,
                                                const GradRequest& request) const {
    return differentiable_gradients(saved.x.with_edge(name), saved.weight.with_edge(name), dy, eps,
                                    request, 1);
  }
};

struct AddLayerNorm {
  static constexpr const char* name = "add_layer_norm";
  struct Saved {
    SavedTensor sum, weight;  // x and delta are not needed again
  };
  double eps;

  // sum = x + delta,  y = (sum - m) r w + b
  std::array<Tensor, 2> forward(Saved& saved, const Tensor& x, const Tensor& delta,
                                const Tensor& weight, const Tensor& bias) const {
    saved.weight.save_input(weight);
    const Tensor plain_bias = bias.defined() ? contiguous_copy(bias) : Tensor();
    Tensor sum = Tensor::empty(x.shape(), x.dtype(), x.device());
    Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    add_kernels.launch(x.device(), &LayerNormKernels::forward, contiguous_copy(x).view(),
                       contiguous_copy(delta).view(), contiguous_copy(weight).view(),
                       bias_view(plain_bias), eps, sum.mutable_view(), y.mutable_view());
    saved.sum.save_output(sum);
    return {sum, y};
  }

  // dx = ddelta = dsum + the gradient of the norm
  std::array<Tensor, 4> backward(const Saved& saved, const std::vector<Tensor>& grads,
                                 const GradRequest& request) const {
    const Tensor &dsum = grads[0], &dy = grads[1];
    if (!dy.defined()) return {dsum, dsum, Tensor(), Tensor()};  // nobody asked about the norm
    const auto [dx, dweight, dbias] = norm_gradients(
        add_kernels, saved.sum.get(name), saved.weight.get(name), dsum, dy, eps, request, 2);
    return {dx, dx, dweight, dbias};
  }
  std::array<Tensor, 4> differentiable_backward(const Saved& saved,
                                                const std::vector<Tensor>& grads,
                                                const GradRequest& request) const {
    const Tensor &dsum = grads[0], &dy = grads[1];
    if (!dy.defined()) return {dsum, dsum, Tensor(), Tensor()};
    auto [dx, dweight, dbias] =
        differentiable_gradients(request.own_output(saved.sum.get(name), 0),
                                 saved.weight.with_edge(name), dy, eps, request, 2);
    if (dx.defined() && dsum.defined()) dx = add(dsum, dx);
    return {dx, dx, dweight, dbias};
  }
};

void check_norm(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                double eps) {
  const auto check_size = [&](const char* what, const Tensor& parameter) {
    check(parameter.shape() == Shape{x.size(-1)}, ErrorKind::shape, op, ": ", what, " is ",
          parameter.shape(), ", expected ", Shape{x.size(-1)}, ", the last size of x ", x.shape());
  };
  check_inputs(op, {{"x", x}, {"weight", weight}});
  if (bias.defined()) check_inputs(op, {{"x", x}, {"bias", bias}});
  check(x.ndim() >= 1, ErrorKind::shape, op, ": x has no dimension to normalise: got ", x.shape(),
        ", expected [..., C]");
  check_size("weight", weight);
  if (bias.defined()) check_size("bias", bias);
  check(eps >= 0, ErrorKind::usage, op, ": eps is ", eps, ", expected 0 or more");
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  check_norm("layer_norm", x, weight, bias, eps);
  return apply(LayerNorm{eps}, x, weight, bias);
}

std::array<Tensor, 2> add_layer_norm(const Tensor& x, const Tensor& delta, const Tensor& weight,
                                     const Tensor& bias, double eps) {
  check_norm("add_layer_norm", x, weight, bias, eps);
  check_addend("add_layer_norm", x, delta);
  return apply(AddLayerNorm{eps}, x, delta, weight, bias);
}

}  // namespace duet
