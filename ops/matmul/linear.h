// What linear and linear_gelu_tanh share: the checks, the operands of the product, the gradients.
#pragma once

#include <array>

#include "autograd/node.h"
#include "autograd/saved_tensor.h"

namespace duet {

// Throws unless `op`(x, weight, bias) is a product that this build can compute; bias may be
// undefined.
void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias);

// x as rows [N, In], the weight and the bias as MatmulKernels::linear takes them.
struct LinearOperands {
  Tensor rows, weight, bias;
  Shape y_shape;  // [*, Out]

  LinearOperands(const Tensor& x, const Tensor& w, const Tensor& b);
  ConstView bias_view() const { return bias.defined() ? bias.view() : ConstView{}; }
  // y [*, Out] as the rows [N, Out] that the kernel writes.
  View rows_of(Tensor& y) const;
  Tensor scratch(Tensor& y) const;  // for MatmulKernels::linear; may be undefined
};

struct LinearSaved {
  SavedTensor x, weight;

  // Keeps what a backward can ask for: dW needs x, dx needs the weight.
  void save(const Tensor& x_in, const Tensor& weight_in);
};

// The gradients of x, weight and bias from that of y = x W^T + bias.
std::array<Tensor, 3> linear_gradients(const char* op, const LinearSaved& saved, const Tensor& dy,
                                       const GradRequest& request);
// The same by differentiable ops.
std::array<Tensor, 3> differentiable_linear_gradients(const char* op, const LinearSaved& saved,
                                                      const Tensor& dy, const GradRequest& request);

}  // namespace duet
