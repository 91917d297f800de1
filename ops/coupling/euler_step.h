// One explicit Euler step of the pair, on a tile:  x' = x + dt k ; k' = k + dt f(x).
#pragma once

#include "ops/coupling/coupling_net.h"

namespace duet {

template <class Math>
struct EulerStep {
  using T = typename Math::Scalar;
  using Net = CouplingNet<Math>;
  using In = Tile<const T>;
  using Out = Tile<T>;

  // What backward needs beside the pair that the step starts from: h = x W1^T.
  static void evaluate(const Net& net, std::int64_t rows, In x, Out h) { net.project(rows, x, h); }

  // a: scratch for silu(h). The outputs may lie where the inputs do.
  static void forward(const Net& net, std::int64_t rows, In x, In k, Out h, Out a, Out x_out,
                      Out k_out) {
    net.project(rows, x, h);
    Math::add_scaled(rows, net.width, net.dt, k, x, x_out);
    Math::silu(h.data, rows * net.hidden, a.data);
    net.add_output(rows, a, k, k_out);
  }

  // From the gradients gx', gk' of the pair after the step to those of the pair before it. With
  // g = W2^T gk' * silu'(h):
  //   gk = gk' + dt gx'          gx = gx' + dt W1^T g
  //   d(dt) += <gx', k> + <gk', f(x)>,  where <gk', f(x)> = <W2^T gk', silu(h)>
  //   dW1 += dt g x^T            dW2 += dt gk' silu(h)^T
  static void backward(const Net& net, std::int64_t rows, In x, In k, In h, In gx, In gk, Out g,
                       Out a, const typename Net::Part* part, Out gx_out, Out gk_out) {
    net.pull_back(rows, gk, g);
    T dot = Math::silu_backward(h.data, rows * net.hidden, g.data, a.data);
    if (part != nullptr) net.add_weight_gradients(rows, g, x, a, gk, *part);
    dot += Math::add_scaled_and_dot(rows, net.width, net.dt, gx, gk, gk_out, k);
    if (part != nullptr) *part->dt += dot;
    net.add_input_gradient(rows, g, gx, gx_out);
  }
};

}  // namespace duet
