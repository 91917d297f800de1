// The parts of coupling_hamiltonian_potential (ops/ops.h), for tests and for who wants to see them.
#pragma once

#include "runtime/tensor.h"

namespace duet {

// U(q) = w2 silu(w1 q), one number for each token of each head.
// [Hkv, N, D], [G, h, D], [G, 1, h] -> [Hkv, N, 1]
Tensor learned_potential(const Tensor& q, const Tensor& w1, const Tensor& w2);

// f(q) = -dU/dq, by autograd, under a NoGradGuard too. If a graph is recorded, f has one, of second
// derivatives of U: through it q, w1 and w2 get gradients.
// [Hkv, N, D], [G, h, D], [G, 1, h] -> [Hkv, N, D]
Tensor potential_force(const Tensor& q, const Tensor& w1, const Tensor& w2);

}  // namespace duet
