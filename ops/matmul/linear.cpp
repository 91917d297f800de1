// linear: y = x W^T + bias, with the weight's gradient added straight into the leaf's buffer.
#include "ops/matmul/linear.h"

#include "autograd/op.h"
#include "ops/computing_dtype.h"
#include "ops/matmul/gemm_scratch.h"
#include "ops/matmul/matmul_kernels.h"
#include "ops/matmul/operand.h"
#include "ops/ops.h"
#include "runtime/memory_ops.h"

namespace duet {
namespace {

Shape with_last(Shape shape, std::int64_t last) {
  shape[shape.ndim() - 1] = last;
  return shape;
}

struct Linear {
  static constexpr const char* name = "linear";
  using Saved = LinearSaved;

  // [*, In], [Out, In], [Out] or undefined -> [*, Out]
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    saved.save(x, weight);
    const LinearOperands in(x, weight, bias);
    Tensor y = Tensor::empty(in.y_shape, x.dtype(), x.device());
    Tensor scratch = in.scratch(y);
    matmul_kernels.launch(y.device(), &MatmulKernels::linear, in.rows.view(), in.weight.view(),
                          in.bias_view(), in.rows_of(y), scratch_view(scratch));
    return y;
  }
  std::array<Tensor, 3> backward(const Saved& saved, const Tensor& dy,
                                 const GradRequest& request) const {
    return linear_gradients(name, saved, dy, request);
  }
  std::array<Tensor, 3> differentiable_backward(const Saved& saved, const Tensor& dy,
                                                const GradRequest& request) const {
    return differentiable_linear_gradients(name, saved, dy, request);
  }
};

}  // namespace

void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check(x.defined() && weight.defined(), ErrorKind::shape, op,
        ": x or weight is undefined; only bias may be");
  check(weight.ndim() == 2, ErrorKind::shape, op, ": weight is ", weight.shape(),
        ", expected [out, in]");
  check(x.ndim() >= 1 && x.size(-1) == weight.size(1), ErrorKind::shape, op,
        ": inner dimensions differ: x is ", x.shape(), ", weight is ", weight.shape(),
        " (the last size of both must be equal)");
  check(!bias.defined() || (bias.ndim() == 1 && bias.size(0) == weight.size(0)), ErrorKind::shape,
        op, ": bias is ", bias.defined() ? bias.shape() : Shape{}, ", expected [", weight.size(0),
        "]");
  check_no_f64_on_cuda(op, x.dtype(), x.device());
  check(computes(x.dtype(), x.device()), ErrorKind::dtype, op, ": dtype is not supported: got ",
        x.dtype(), ", expected f32 or f64");
  for (const Tensor* t : {&weight, &bias}) {
    if (!t->defined()) continue;
    check(t->dtype() == x.dtype(), ErrorKind::dtype, op, ": dtypes differ: x is ", x.dtype(), ", ",
          t == &bias ? "bias" : "weight", " is ", t->dtype(), "; convert one of them");
    check(t->device() == x.device(), ErrorKind::device, op, ": devices differ: x is on ",
          x.device(), ", ", t == &bias ? "bias" : "weight", " is on ", t->device());
  }
}

LinearOperands::LinearOperands(const Tensor& x, const Tensor& w, const Tensor& b)
    : rows(as_gemm_operand(as_rows(x))),
      weight(as_gemm_operand(w)),
      bias(b.defined() ? contiguous_copy(b) : Tensor()),
      y_shape(with_last(x.shape(), w.size(0))) {}

Tensor LinearOperands::scratch(Tensor& y) const {
  return linear_scratch(rows.view(), weight.view(), bias_view(), rows_of(y), y.device());
}

View LinearOperands::rows_of(Tensor& y) const {
  return y.reshape_view({rows.size(0), weight.size(0)}).mutable_view();
}

void LinearSaved::save(const Tensor& x_in, const Tensor& weight_in) {
  if (requires_grad(weight_in)) x.save_input(x_in);
  if (requires_grad(x_in)) weight.save_input(weight_in);
}

// dx = dy W, dW = dy^T x, dbias = sum of dy over rows
std::array<Tensor, 3> linear_gradients(const char* op, const LinearSaved& saved, const Tensor& dy,
                                       const GradRequest& request) {
  const Tensor dy_rows = as_gemm_operand(as_rows(dy));
  std::array<Tensor, 3> grads;
  if (request.needed(0)) {
    const Tensor w = as_gemm_operand(saved.weight.get(op));
    Tensor dx = Tensor::empty(with_last(dy.shape(), w.size(1)), dy.dtype(), dy.device());
    const View dx_rows = dx.reshape_view({dy_rows.size(0), w.size(1)}).mutable_view();
    Tensor scratch = gemm_scratch(dy_rows.view(), w.view(), dx_rows, false, dy.device());
    matmul_kernels.launch(dy.device(), &MatmulKernels::gemm, dy_rows.view(), w.view(), dx_rows,
                          false, scratch_view(scratch));
    grads[0] = std::move(dx);
  }
  Tensor rows;
  View dw, dbias;
  bool accumulate_dw = false, accumulate_dbias = false;
  if (request.needed(1)) {
    rows = as_gemm_operand(as_rows(saved.x.get(op)));
    GradTarget target(request.accumulator(1), {dy_rows.size(1), rows.size(1)}, dy);
    dw = target.out.mutable_view();
    accumulate_dw = target.accumulate;
    grads[1] = target.out;
  }
  if (request.needed(2)) {
    GradTarget target(request.accumulator(2), {dy_rows.size(1)}, dy);
    dbias = target.out.mutable_view();
    accumulate_dbias = target.accumulate;
    grads[2] = target.out;
  }
  if (request.needed(1) || request.needed(2)) {
    Tensor scratch = request.needed(1) ? gemm_scratch(transposed(dy_rows.view()), rows.view(), dw,
                                                      accumulate_dw, dy.device())
                                       : Tensor();
    matmul_kernels.launch(dy.device(), &MatmulKernels::weight_gradient, dy_rows.view(),
                          rows.defined() ? rows.view() : ConstView{}, dw, dbias, accumulate_dw,
                          accumulate_dbias, scratch_view(scratch));
  }
  return grads;
}

std::array<Tensor, 3> differentiable_linear_gradients(const char* op, const LinearSaved& saved,
                                                      const Tensor& dy,
                                                      const GradRequest& request) {
  const std::int64_t out_size = dy.size(-1);
  std::int64_t count = 1;
  for (int d = 0; d + 1 < dy.ndim(); ++d) count *= dy.shape()[d];
  const Tensor dy_rows = reshape(dy, {count, out_size});
  std::array<Tensor, 3> grads;
  if (request.needed(0)) {
    const Tensor weight = saved.weight.with_edge(op);
    grads[0] = reshape(matmul(dy_rows, weight), with_last(dy.shape(), weight.size(1)));
  }
  if (request.needed(1)) {
    const Tensor x = saved.x.with_edge(op);
    grads[1] = matmul(transpose(dy_rows, 0, 1), reshape(x, {count, x.size(-1)}));
  }
  if (request.needed(2)) grads[2] = sum(dy_rows, {0});
  return grads;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_linear(Linear::name, x, weight, bias);
  return apply(Linear{}, x, weight, bias);
}

}  // namespace duet
