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
constexpr KernelTable<RmsNormKernels> add_kernels{"add_rms_norm", &rms_norm_cpu,
                                                  DUET_CUDA_TABLE(rms_norm_cuda)};

// dx and dweight of y = x r w, where the inputs before number `at_weight` are what x is made of,
// and x has the gradient dsum (or none) on another way. r is computed again: the row is read
// anyway. With n = x r and g = dy w:
//   dx = dsum + r (g - n mean(g n)),   dw = sum over rows of dy n
std::array<Tensor, 2> norm_gradients(const KernelTable<RmsNormKernels>& table, const Tensor& x_in,
                                     const Tensor& weight_in, const Tensor& dsum, const Tensor& dy,
                                     double eps, const GradRequest& request,
                                     std::size_t at_weight) {
  const Tensor x = contiguous_copy(x_in);
  const Tensor weight = contiguous_copy(weight_in);
  const Tensor plain_dsum = dsum.defined() ? contiguous_copy(dsum) : Tensor();
  Tensor dx =
      any_needed(request, at_weight) ? Tensor::empty(x.shape(), x.dtype(), x.device()) : Tensor();
  WeightGradient dweight(request, at_weight, weight);
  Tensor parts;
  if (dweight.needed()) {
    const std::int64_t width = weight.size(0);
    const std::int64_t rows = width > 0 ? x.numel() / width : 0;
    parts = Tensor::empty({rms_norm_chunks(rows, x.device().kernels()).count, width}, x.dtype(),
                          x.device());
  }
  table.launch(x.device(), &RmsNormKernels::backward, x.view(), weight.view(),
               dsum.defined() ? plain_dsum.view() : ConstView{}, contiguous_copy(dy).view(), eps,
               view_or_null(dx), view_or_null(parts), dweight.view(), dweight.add);
  return {dx, dweight.tensor};
}

// The same without dsum, by differentiable ops.
std::array<Tensor, 2> differentiable_gradients(const Tensor& x, const Tensor& weight,
                                               const Tensor& dy, double eps,
                                               const GradRequest& request, std::size_t at_weight) {
  const Tensor r = rsqrt(row_mean(mul(x, x)), eps);
  const Tensor n = mul(x, r);
  std::array<Tensor, 2> grads;
  if (any_needed(request, at_weight)) {
    const Tensor g = mul(dy, weight);
    grads[0] = mul(r, sub(g, mul(n, row_mean(mul(g, n)))));
  }
  if (request.needed(at_weight)) {
    grads[1] = differentiable_sum_to(mul(dy, n), weight.shape());
  }
  return grads;
}

struct RmsNorm {
  static constexpr const char* name = "rms_norm";
  struct Saved {
    SavedTensor x, weight;
  };
  double eps;

  // y = x r w,  r = 1 / sqrt(mean(x^2) + eps)
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight) const {
    saved.x.save_input(x);
    saved.weight.save_input(weight);
    Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    kernels.launch(x.device(), &RmsNormKernels::forward, contiguous_copy(x).view(), ConstView{},
                   contiguous_copy(weight).view(), eps, View{}, y.mutable_view());
    return y;
  }
  std::array<Tensor, 2> backward(const Saved& saved, const Tensor& dy,
                                 const GradRequest& request) const {
    return norm_gradients(kernels, saved.x.get(name), saved.weight.get(name), {}, dy, eps, request,
                          1);
  }
  std::array<Tensor, 2> differentiable_backward(const Saved& saved, const Tensor& dy,
                                                const GradRequest& request) const {
    return differentiable_gradients(saved.x.with_edge(name), saved.weight.with_edge(name), dy, eps,
                                    request, 1);
  }
};

struct AddRmsNorm {
  static constexpr const char* name = "add_rms_norm";
  struct Saved {
    SavedTensor sum, weight;  // x and delta are not needed again
  };
  double eps;

  // sum = x + delta,  y = sum r w
  std::array<Tensor, 2> forward(Saved& saved, const Tensor& x, const Tensor& delta,
                                const Tensor& weight) const {
    saved.weight.save_input(weight);
    Tensor sum = Tensor::empty(x.shape(), x.dtype(), x.device());
    Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    add_kernels.launch(x.device(), &RmsNormKernels::forward, contiguous_copy(x).view(),
                       contiguous_copy(delta).view(), contiguous_copy(weight).view(), eps,
                       sum.mutable_view(), y.mutable_view());
    saved.sum.save_output(sum);
    return {sum, y};
  }

  // dx = ddelta = dsum + the gradient of the norm
  std::array<Tensor, 3> backward(const Saved& saved, const std::vector<Tensor>& grads,
                                 const GradRequest& request) const {
    const Tensor &dsum = grads[0], &dy = grads[1];
    if (!dy.defined()) return {dsum, dsum, Tensor()};  // nobody asked about the norm
    const auto [dx, dweight] = norm_gradients(add_kernels, saved.sum.get(name),
                                              saved.weight.get(name), dsum, dy, eps, request, 2);
    return {dx, dx, dweight};
  }
  std::array<Tensor, 3> differentiable_backward(const Saved& saved,
                                                const std::vector<Tensor>& grads,
                                                const GradRequest& request) const {
    const Tensor &dsum = grads[0], &dy = grads[1];
    if (!dy.defined()) return {dsum, dsum, Tensor()};
    auto [dx, dweight] =
        differentiable_gradients(request.own_output(saved.sum.get(name), 0),
                                 saved.weight.with_edge(name), dy, eps, request, 2);
    if (dx.defined() && dsum.defined()) dx = add(dsum, dx);
    return {dx, dx, dweight};
  }
};

void check_norm(const char* op, const Tensor& x, const Tensor& weight, double eps) {
  check_inputs(op, {{"x", x}, {"weight", weight}});
  check(x.ndim() >= 1, ErrorKind::shape, op, ": x has no dimension to normalise: got ", x.shape(),
        ", expected [..., C]");
  check(weight.shape() == Shape{x.size(-1)}, ErrorKind::shape, op, ": weight is ", weight.shape(),
        ", expected ", Shape{x.size(-1)}, ", the last size of x ", x.shape());
  check(eps >= 0, ErrorKind::usage, op, ": eps is ", eps, ", expected 0 or more");
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  check_norm("rms_norm", x, weight, eps);
  return apply(RmsNorm{eps}, x, weight);
}

std::array<Tensor, 2> add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& weight,
                                   double eps) {
  check_norm("add_rms_norm", x, weight, eps);
  check_addend("add_rms_norm", x, delta);
  return apply(AddRmsNorm{eps}, x, delta, weight);
}

}  // namespace duet
