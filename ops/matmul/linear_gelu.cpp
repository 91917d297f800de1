// linear_gelu_tanh: h = x W^T + bias and y = gelu_tanh(h), both written by one product.
#include "autograd/op.h"
#include "ops/matmul/gemm_scratch.h"
#include "ops/matmul/linear.h"
#include "ops/matmul/matmul_kernels.h"
#include "ops/ops.h"
#include "ops/pointwise/gelu_tanh.h"

namespace duet {
namespace {

struct LinearGeluTanh {
  static constexpr const char* name = "linear_gelu_tanh";
  struct Saved : LinearSaved {
    SavedTensor h;
  };

  // [*, In], [Out, In], [Out] or undefined -> y and h, [*, Out]. Nobody but a second derivative
  // sees h, which makes it an output.
  std::array<Tensor, 2> forward(Saved& saved, const Tensor& x, const Tensor& weight,
                                const Tensor& bias) const {
    saved.save(x, weight);
    const LinearOperands in(x, weight, bias);
    Tensor h = Tensor::empty(in.y_shape, x.dtype(), x.device());
    Tensor y = Tensor::empty(in.y_shape, x.dtype(), x.device());
    Tensor scratch = in.scratch(h);
    matmul_kernels.launch(y.device(), &MatmulKernels::linear_gelu_tanh, in.rows.view(),
                          in.weight.view(), in.bias_view(), in.rows_of(h), in.rows_of(y),
                          scratch_view(scratch));
    saved.h.save_output(h);
    return {y, h};
  }

  // dh = gelu_tanh'(h) dy, then as linear. h ends before the products take memory.
  std::array<Tensor, 3> backward(Saved& saved, const std::vector<Tensor>& grads,
                                 const GradRequest& request) const {
    const Tensor dh = gradient_of_h(saved.h.get(name), grads);
    saved.h.reset();
    return linear_gradients(name, saved, dh, request);
  }
  std::array<Tensor, 3> differentiable_backward(const Saved& saved,
                                                const std::vector<Tensor>& grads,
                                                const GradRequest& request) const {
    const Tensor dh = gradient_of_h(request.own_output(saved.h.get(name), 1), grads);
    return differentiable_linear_gradients(name, saved, dh, request);
  }

  // What arrives through y, and through h itself.
  static Tensor gradient_of_h(const Tensor& h, const std::vector<Tensor>& grads) {
    const Tensor &dy = grads[0], &dh = grads[1];
    if (!dy.defined()) return dh;
    const Tensor through_y = gelu_tanh_gradient(h, dy);
    return dh.defined() ? add(through_y, dh) : through_y;
  }
};

}  // namespace

Tensor linear_gelu_tanh(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_linear(LinearGeluTanh::name, x, weight, bias);
  return apply(LinearGeluTanh{}, x, weight, bias)[0];
}

}  // namespace duet
