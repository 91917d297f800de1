// The coupling whose force is the gradient of a learned potential: the force, the symplectic form,
// the energy over a long time, and what is left of a graph.
#include "ops/coupling/hamiltonian_potential.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/node.h"
#include "autograd/saved_tensor.h"
#include "runtime/memory_ops.h"
#include "tests/ops/coupling_reference.h"

namespace duet::test {
namespace {

constexpr Map kMap = Map::hamiltonian_potential;

Tensor leaf_of(const Tensor& t) {
  Tensor leaf = clone(t);
  set_requires_grad(leaf);
  return leaf;
}

// --- The force

// f(q) = -w1^T (silu'(w1 q) * w2), silu'(h) = s (1 + h (1 - s)), by differentiable ops.
Tensor force_by_hand(const Tensor& q, const Tensor& w1, const Tensor& w2) {
  const Tensor h = matmul(q, transpose(w1, 1, 2)), s = sigmoid(h);
  const Tensor one = Tensor::full({1}, 1, q.dtype());
  const Tensor slope = mul(s, add(one, mul(h, sub(one, s))));
  return scale(matmul(mul(slope, w2), w1), -1);
}

struct Field {
  Tensor q, w1, w2;  // [Hkv, N, D], [G, h, D], [G, 1, h]
};
Field field(std::int64_t nets) {
  return {random_tensor({2, 7, 6}, -2, 2, 1), random_tensor({nets, 5, 6}, -1, 1, 2),
          random_tensor({nets, 1, 5}, -1, 1, 3)};
}

TEST(PotentialForce, IsTheClosedForm) {
  for (const std::int64_t nets : {2, 1}) {
    const Field at = field(nets);
    const Tensor want = force_by_hand(at.q, at.w1, at.w2);
    EXPECT_GT(std::abs(values(want)[0]), 1e-3);
    const NoGradGuard no_grad;
    EXPECT_EQ(compare("f", potential_force(at.q, at.w1, at.w2), want, {0, 1e-12}), "");
  }
}

TEST(PotentialForce, IsTheSlopeOfThePotential) {
  const Field at = field(2);
  const double h = 1e-5;
  const NoGradGuard no_grad;
  const std::vector<double> f = values(potential_force(at.q, at.w1, at.w2));
  for (std::int64_t i = 0; i < at.q.numel(); ++i) {
    Tensor up = clone(at.q), down = clone(at.q);
    up.mutable_data<double>()[i] += h;
    down.mutable_data<double>()[i] -= h;
    const double slope = (sum(learned_potential(up, at.w1, at.w2)).item() -
                          sum(learned_potential(down, at.w1, at.w2)).item()) /
                         (2 * h);
    EXPECT_NEAR(f[static_cast<std::size_t>(i)], -slope, 1e-8) << i;
  }
}

// Double backward: gradients of <f, c> by q, w1 and w2, where f is itself a gradient.
TEST(PotentialForce, HasTheGradientsOfTheClosedForm) {
  for (const std::int64_t nets : {2, 1}) {
    const Field at = field(nets);
    const Tensor cotangent = random_tensor(at.q.shape(), -1, 1, 4);
    Tensors found[2];
    for (const int by_hand : {0, 1}) {
      const Tensor q = leaf_of(at.q), w1 = leaf_of(at.w1), w2 = leaf_of(at.w2);
      const Tensor f = by_hand != 0 ? force_by_hand(q, w1, w2) : potential_force(q, w1, w2);
      backward(f, cotangent);
      found[by_hand] = {grad(q), grad(w1), grad(w2)};
    }
    for (const std::size_t i : {0U, 1U, 2U}) {
      EXPECT_EQ(compare("gradient", found[0][i], found[1][i], {1e-12, 1e-12}), "") << i;
    }
  }
}

// --- The symplectic form

using Matrix = std::vector<std::vector<double>>;

// The derivative of (q, k) -> (q', k') of one token, exact: one backward for each output.
Matrix jacobian(Map map, const Tensors& in, int steps) {
  const auto width = static_cast<std::size_t>(in[0].size(3));
  Matrix j(2 * width, std::vector<double>(2 * width));
  for (std::size_t row = 0; row < 2 * width; ++row) {
    Tensors leaves = in;
    for (const std::size_t i : {0U, 1U}) leaves[i] = leaf_of(in[i]);
    const Tensor y = fused(map, leaves, steps)[row / width];
    Tensor one = Tensor::zeros(y.shape(), DType::f64);
    one.mutable_data<double>()[row % width] = 1;
    const Tensors d = grad(y, {leaves[0], leaves[1]}, {.grad_output = one});
    for (const std::size_t i : {0U, 1U}) {
      const std::vector<double> part = d[i].defined() ? values(d[i]) : std::vector<double>(width);
      std::copy(part.begin(), part.end(), j[row].begin() + static_cast<std::ptrdiff_t>(i * width));
    }
  }
  return j;
}

// The largest element of J^T Omega J - Omega, Omega = [[0, I], [-I, 0]].
double symplectic_error(const Matrix& j) {
  const std::size_t width = j.size() / 2;
  double worst = 0;
  for (std::size_t a = 0; a < 2 * width; ++a) {
    for (std::size_t b = 0; b < 2 * width; ++b) {
      double form = 0;
      for (std::size_t i = 0; i < width; ++i) {
        form += j[i][a] * j[width + i][b] - j[width + i][a] * j[i][b];
      }
      const double omega = b == a + width ? 1 : (a == b + width ? -1 : 0);
      worst = std::max(worst, std::abs(form - omega));
    }
  }
  return worst;
}

Tensors one_token(Map map, double dt) {
  Tensors in = coupling_inputs(map, {1, 1, 1, 1, 6, 5, 1, 1}, DType::f64);
  in[4] = Tensor::full({1}, dt, DType::f64);
  return in;
}

// A force that is a gradient has a symmetric derivative. An arbitrary one keeps the volume alone.
TEST(HamiltonianPotential, KeepsTheSymplecticForm) {
  for (const int steps : {1, 3}) {
    EXPECT_LT(symplectic_error(jacobian(kMap, one_token(kMap, 0.7), steps)), 1e-12);
    for (const Map other : {Map::leapfrog, Map::symplectic_euler, Map::euler}) {
      EXPECT_GT(symplectic_error(jacobian(other, one_token(other, 0.7), steps)), 1e-2)
          << name_of(other);
    }
  }
}

TEST(HamiltonianPotential, BackwardsInTimeIsTheSameMapWithMinusDt) {
  for (const std::int64_t query_heads : {2, 4}) {
    for (const int steps : {1, 3, 7}) {
      Tensors in = coupling_inputs(kMap, {2, 37, query_heads, 2, 16, 8, 2, 1}, DType::f64);
      const Tensors there = fused(kMap, in, steps);
      EXPECT_NE(compare("q", there[0], in[0], {1e-3, 1e-3}), "");
      const Tensors back = fused(kMap, {there[0], there[1], in[2], in[3], scale(in[4], -1)}, steps);
      EXPECT_EQ(compare("q", back[0], in[0], {0, 1e-12}), "");
      EXPECT_EQ(compare("k", back[1], in[1], {0, 1e-12}), "");
    }
  }
}

// --- Energy

// Weights for which U has a bottom: +-w rows with positive w2 add silu(h) + silu(-h) = h tanh(h/2).
Tensors well(double dt) {
  Tensors in = one_token(kMap, dt);
  const Tensor half = random_tensor({1, 6, 6}, -1, 1, 7);
  in[2] = cat({half, scale(half, -1)}, 1);
  in[3] = Tensor::full({1, 1, 12}, 0.5, DType::f64);
  return in;
}

// H(q, k) = |k|^2 / 2 + U(q)
double energy(const Tensors& in) {
  const std::int64_t width = in[0].size(3);
  const Tensor q = reshape(contiguous(in[0]), {1, 1, width});
  return sum(mul(in[1], in[1])).item() / 2 + learned_potential(q, in[2], in[3]).item();
}

// q' = q + dt k ; k' = k + dt f(q), both from the old pair.
void euler_step(Tensors& in, double dt) {
  const Shape shape = in[0].shape(), heads_first{1, 1, in[0].size(3)};
  const Tensor force = potential_force(reshape(contiguous(in[0]), heads_first), in[2], in[3]);
  in[0] = add(in[0], scale(in[1], dt));
  in[1] = add(in[1], scale(reshape(force, shape), dt));
}

// The largest energy error of each quarter of the way.
std::vector<double> energy_errors(Tensors in, double dt, int steps, bool by_euler) {
  const NoGradGuard no_grad;
  const double start = energy(in);
  std::vector<double> worst(4);
  for (int n = 0; n < steps; ++n) {
    if (by_euler) {
      euler_step(in, dt);
    } else {
      const Tensors out = fused(kMap, in, 1);
      in[0] = out[0];
      in[1] = out[1];
    }
    double& quarter = worst[static_cast<std::size_t>(n * 4 / steps)];
    quarter = std::max(quarter, std::abs(energy(in) - start));
  }
  return worst;
}

// Leapfrog's energy swings about its true value and stays there: its steps lie on the orbit of a
// Hamiltonian dt^2 away. Euler, with the very same force, gains energy with every step.
TEST(HamiltonianPotential, TheEnergyErrorStaysBoundedOverAThousandSteps) {
  const double dt = 0.1;
  const std::vector<double> errors = energy_errors(well(dt), dt, 1000, false);
  const double first = std::max(errors[0], errors[1]), second = std::max(errors[2], errors[3]);
  EXPECT_GT(first, 1e-5);
  EXPECT_LT(second, 1.1 * first);
  EXPECT_LT(second, 0.05 * energy(well(dt)));
  const std::vector<double> drift = energy_errors(well(dt), dt, 1000, true);
  for (const std::size_t i : {1U, 2U, 3U}) EXPECT_GT(drift[i], 1.2 * drift[i - 1]) << i;
  EXPECT_GT(drift[3], 50 * second);
}

TEST(HamiltonianPotential, TheEnergyErrorFallsWithTheSquareOfDt) {
  double worst[2];
  for (const int i : {0, 1}) {
    const double dt = i == 0 ? 0.1 : 0.05;
    const std::vector<double> errors = energy_errors(well(dt), dt, i == 0 ? 1000 : 2000, false);
    worst[i] = *std::max_element(errors.begin(), errors.end());
  }
  EXPECT_NEAR(worst[0] / worst[1], 4, 0.5);
}

// The half kicks that merge within a call are those of calls in a row.
TEST(HamiltonianPotential, StepsInOneCallAreCallsInARow) {
  const Tensors in = coupling_inputs(kMap, {1, 5, 4, 2, 8, 4, 2, 1}, DType::f64);
  Tensors pair = in;
  for (int n = 0; n < 20; ++n) {
    const Tensors out = fused(kMap, pair, 1);
    pair[0] = out[0];
    pair[1] = out[1];
  }
  const Tensors at_once = fused(kMap, in, 20);
  EXPECT_EQ(compare("q", at_once[0], pair[0], {1e-12, 1e-12}), "");
  EXPECT_EQ(compare("k", at_once[1], pair[1], {1e-12, 1e-12}), "");
}

// --- Graphs

// U's third derivatives come from the same ops: what was differentiated twice may be once more.
TEST(HamiltonianPotential, OffersSecondDerivativesOfItsOwn) {
  Tensors in = coupling_inputs(kMap, {1, 5, 4, 2, 8, 4, 2, 1}, DType::f64);
  for (Tensor& t : in) set_requires_grad(t);
  for (const Tensor& y : fused(kMap, in, 2)) EXPECT_EQ(op_without_second_order(y), nullptr);
}

TEST(HamiltonianPotential, KeepsNothingWithoutAGraph) {
  const std::size_t before = saved_bytes();
  Tensors in = coupling_inputs(kMap, {1, 5, 4, 2, 8, 4, 2, 1}, DType::f32);
  const Tensors plain = fused(kMap, in, 2);  // nothing requires grad
  EXPECT_FALSE(requires_grad(plain[0]) || requires_grad(plain[1]));
  for (Tensor& t : in) set_requires_grad(t);
  const Tensors recorded = fused(kMap, in, 2);
  EXPECT_GT(saved_bytes(), before);
  {
    const NoGradGuard no_grad;
    const std::size_t held = saved_bytes();
    const Tensors out = fused(kMap, in, 2);
    EXPECT_FALSE(grad_enabled());
    EXPECT_FALSE(requires_grad(out[0]) || requires_grad(out[1]));
    EXPECT_EQ(saved_bytes(), held);
    for (const std::size_t i : {0U, 1U}) {
      EXPECT_EQ(compare("with and without a graph", out[i], recorded[i], {}), "");
      EXPECT_EQ(compare("without and nothing to train", out[i], plain[i], {}), "");
    }
  }
  // Forward took gradients of U, and left none in the leaves.
  for (const Tensor& t : in) EXPECT_FALSE(grad(t).defined());
  backward(weighted_sum(recorded, {Tensor::full(recorded[0].shape(), 1, DType::f32),
                                   Tensor::full(recorded[1].shape(), 1, DType::f32)}));
  EXPECT_EQ(saved_bytes(), before);
}

}  // namespace
}  // namespace duet::test
