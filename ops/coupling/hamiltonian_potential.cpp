// coupling_hamiltonian_potential: leapfrog under the force of a learned potential. A worked example
// of second order: forward takes a gradient, so backward differentiates a gradient.
#include "ops/coupling/hamiltonian_potential.h"

#include "autograd/node.h"
#include "ops/coupling/check_coupling.h"
#include "ops/ops.h"

namespace duet {

Tensor learned_potential(const Tensor& q, const Tensor& w1, const Tensor& w2) {
  const Tensor hidden = silu(matmul(q, transpose(w1, 1, 2)));  // [Hkv, N, h]
  return matmul(hidden, transpose(w2, 1, 2));
}

// By hand it would be f = -w1^T (silu'(w1 q) * w2). Nobody writes that down: grad() does, and with
// create_graph what it did can be differentiated again.
Tensor potential_force(const Tensor& q, const Tensor& w1, const Tensor& w2) {
  const bool trained =
      grad_enabled() && (requires_grad(q) || requires_grad(w1) || requires_grad(w2));
  // Without training U still needs a graph, which ends with this function.
  const EnableGradGuard enable;
  Tensor at = q;
  if (!trained || !requires_grad(q)) {
    at = q.detach();
    set_requires_grad(at);
  }
  // A token's U depends on its own q alone: the gradient of the sum is each token's own.
  const Tensor minus_u = scale(sum(learned_potential(at, w1, w2)), -1);
  return grad(minus_u, {at}, {.create_graph = trained})[0];
}

// Kick, drift, kick. The half kicks of consecutive steps see the same q and merge: n + 1 forces.
std::array<Tensor, 2> coupling_hamiltonian_potential(const Tensor& q, const Tensor& k,
                                                     const Tensor& w1, const Tensor& w2,
                                                     const Tensor& dt,
                                                     const CouplingOptions& options) {
  check_stepped_coupling("coupling_hamiltonian_potential", {q, k, w1, w2, dt}, options,
                         {.one_output = true, .invertible = false});
  const std::int64_t tokens = q.size(0) * q.size(1), width = q.size(3);
  const std::int64_t heads = k.size(2), group = q.size(2) / heads;

  // Heads first, so that a product meets each with its own net; m queries share a key.
  const Tensor queries = transpose(reshape(q, {tokens, heads, group, width}), 0, 1);
  const Tensor mean = group == 1 ? reshape(queries, {heads, tokens, width})
                                 : scale(sum(queries, {2}), 1.0 / static_cast<double>(group));
  const Tensor step = reshape(dt, {dt.size(0), 1, 1}), half_step = scale(step, 0.5);

  Tensor position = mean;                                                 // [Hkv, N, D]
  Tensor momentum = transpose(reshape(k, {tokens, heads, width}), 0, 1);  // [Hkv, N, D]
  const auto kick = [&](const Tensor& by) {
    momentum = add(momentum, mul(by, potential_force(position, w1, w2)));
  };
  kick(half_step);
  for (int n = 1; n <= options.steps; ++n) {
    position = add(position, mul(step, momentum));
    kick(n < options.steps ? step : half_step);
  }

  // Every query of a group moves by what their mean moved.
  const Tensor moved =
      group == 1 ? position : add(queries, reshape(sub(position, mean), {heads, tokens, 1, width}));
  const auto result = [&](const Tensor& heads_first, const Shape& shape) {
    const Tensor x = reshape(transpose(heads_first, 0, 1), shape);
    return options.rotation.defined() ? rope(x, options.rotation, options.position) : x;
  };
  return {result(moved, q.shape()), result(momentum, k.shape())};
}

}  // namespace duet
