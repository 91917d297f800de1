// linear: y = x W^T + bias, with the weight's gradient added straight into the leaf's buffer.
#include "autograd/op.h"
#include "ops/computing_dtype.h"
#include "ops/matmul/matmul_kernels.h"
#include "ops/matmul/operand.h"
#include "ops/ops.h"
#include "runtime/memory_ops.h"

namespace duet {
namespace {

constexpr const char* kName = "linear";

Shape with_last(Shape shape, std::int64_t last) {
  shape[shape.ndim() - 1] = last;
  return shape;
}

struct Linear {
  static constexpr const char* name = kName;
  struct Saved {
    SavedTensor x, weight;
  };

  // [*, In], [Out, In], [Out] or undefined -> [*, Out]
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    // dW needs x, dx needs the weight: keep what a backward can ask for.
    if (requires_grad(weight)) saved.x.save_input(x);
    if (requires_grad(x)) saved.weight.save_input(weight);
    const std::int64_t out_size = weight.size(0);
    const Tensor rows = as_gemm_operand(as_rows(x));
    const Tensor w = as_gemm_operand(weight);
    const Tensor b = bias.defined() ? contiguous_copy(bias) : Tensor();
    Tensor y = Tensor::empty(with_last(x.shape(), out_size), x.dtype(), x.device());
    matmul_kernels.launch(y.device(), &MatmulKernels::linear, rows.view(), w.view(),
                          b.defined() ? b.view() : ConstView{},
                          y.reshape_view({rows.size(0), out_size}).mutable_view());
    return y;
  }

  // dx = dy W, dW = dy^T x, dbias = sum of dy over rows
  std::array<Tensor, 3> backward(const Saved& saved, const Tensor& dy,
                                 const GradRequest& request) const {
    const Tensor dy_rows = as_gemm_operand(as_rows(dy));
    std::array<Tensor, 3> grads;
    if (request.needed(0)) {
      const Tensor w = as_gemm_operand(saved.weight.get(name));
      Tensor dx = Tensor::empty(with_last(dy.shape(), w.size(1)), dy.dtype(), dy.device());
      matmul_kernels.launch(dy.device(), &MatmulKernels::gemm, dy_rows.view(), w.view(),
                            dx.reshape_view({dy_rows.size(0), w.size(1)}).mutable_view(), false);
      grads[0] = std::move(dx);
    }
    if (request.needed(1)) {
      const Tensor rows = as_gemm_operand(as_rows(saved.x.get(name)));
      GradTarget dw(request.accumulator(1), {dy_rows.size(1), rows.size(1)}, dy);
      matmul_kernels.launch(dy.device(), &MatmulKernels::gemm, dy_rows.transpose_view(0, 1).view(),
                            rows.view(), dw.out.mutable_view(), dw.accumulate);
      grads[1] = dw.out;
    }
    if (request.needed(2)) {
      GradTarget db(request.accumulator(2), {dy_rows.size(1)}, dy);
      matmul_kernels.launch(dy.device(), &MatmulKernels::column_sum, dy_rows.view(),
                            db.out.mutable_view(), db.accumulate);
      grads[2] = db.out;
    }
    return grads;
  }
  std::array<Tensor, 3> differentiable_backward(const Saved& saved, const Tensor& dy,
                                                const GradRequest& request) const {
    const std::int64_t out_size = dy.size(-1);
    std::int64_t count = 1;
    for (int d = 0; d + 1 < dy.ndim(); ++d) count *= dy.shape()[d];
    const Tensor dy_rows = reshape(dy, {count, out_size});
    std::array<Tensor, 3> grads;
    if (request.needed(0)) {
      const Tensor weight = saved.weight.with_edge(name);
      grads[0] = reshape(matmul(dy_rows, weight), with_last(dy.shape(), weight.size(1)));
    }
    if (request.needed(1)) {
      const Tensor x = saved.x.with_edge(name);
      grads[1] = matmul(transpose(dy_rows, 0, 1), reshape(x, {count, x.size(-1)}));
    }
    if (request.needed(2)) grads[2] = sum(dy_rows, {0});
    return grads;
  }
};

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check(x.defined() && weight.defined(), ErrorKind::shape, kName,
        ": x or weight is undefined; only bias may be");
  check(weight.ndim() == 2, ErrorKind::shape, kName, ": weight is ", weight.shape(),
        ", expected [out, in]");
  check(x.ndim() >= 1 && x.size(-1) == weight.size(1), ErrorKind::shape, kName,
        ": inner dimensions differ: x is ", x.shape(), ", weight is ", weight.shape(),
        " (the last size of both must be equal)");
  check(!bias.defined() || (bias.ndim() == 1 && bias.size(0) == weight.size(0)), ErrorKind::shape,
        kName, ": bias is ", bias.defined() ? bias.shape() : Shape{}, ", expected [",
        weight.size(0), "]");
  check_no_f64_on_cuda(kName, x.dtype(), x.device());
  check(computes(x.dtype(), x.device()), ErrorKind::dtype, kName, ": dtype is not supported: got ",
        x.dtype(), ", expected f32 or f64");
  for (const Tensor* t : {&weight, &bias}) {
    if (!t->defined()) continue;
    check(t->dtype() == x.dtype(), ErrorKind::dtype, kName, ": dtypes differ: x is ", x.dtype(),
          ", ", t == &bias ? "bias" : "weight", " is ", t->dtype(), "; convert one of them");
    check(t->device() == x.device(), ErrorKind::device, kName, ": devices differ: x is on ",
          x.device(), ", ", t == &bias ? "bias" : "weight", " is on ", t->device());
  }
  return apply(Linear{}, x, weight, bias);
}

}  // namespace duet
