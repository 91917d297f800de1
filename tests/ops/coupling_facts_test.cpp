// What follows from the equations of the couplings, each fact on numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "autograd/node.h"
#include "ops/ops.h"
#include "runtime/memory_ops.h"
#include "tests/ops/coupling_reference.h"

namespace duet::test {
namespace {

// --- euler

TEST(CouplingEuler, WithoutForceTheQueryDrifts) {
  for (const int steps : {1, 4}) {
    Tensors in = coupling_inputs(Map::euler, {2, 19, 4, 2, 16, 8, 2, steps}, DType::f64);
    in[3] = Tensor::zeros(in[3].shape(), DType::f64);  // W2 = 0, so f = 0
    const Tensors out = fused(Map::euler, in, steps);
    EXPECT_EQ(compare("k", out[1], in[1], {}), "");
    for (std::int64_t head = 0; head < 4; ++head) {
      const std::int64_t g = head / 2;
      const double n_dt = steps * values(in[4])[static_cast<std::size_t>(g)];
      const Tensor want =
          add(in[0].slice_view(2, head, head + 1), scale(in[1].slice_view(2, g, g + 1), n_dt));
      EXPECT_EQ(compare("q", out[0].slice_view(2, head, head + 1), want, {1e-13, 1e-13}), "");
    }
  }
}

// One step moves the queries as W_q + dt W_k in the place of W_q would, and the keys by dt f(q).
TEST(CouplingEuler, OneStepIsAChangeOfTheQueryProjection) {
  const std::int64_t width = 8;
  const double dt = 0.17;
  const Tensor x = random_tensor({2, 5, 12}, -1, 1, 1);
  const Tensor w_q = random_tensor({width, 12}, -1, 1, 2),
               w_k = random_tensor({width, 12}, -1, 1, 3);
  const Tensor w1 = random_tensor({1, 4, width}, -1, 1, 4),
               w2 = random_tensor({1, width, 4}, -1, 1, 5);
  const Shape heads{2, 5, 1, width};
  const Tensor q = reshape(linear(x, w_q), heads), k = reshape(linear(x, w_k), heads);
  const Tensors out = fused(Map::euler, {q, k, w1, w2, Tensor::full({1}, dt, DType::f64)}, 1);
  const Tensor moved = reshape(linear(x, add(w_q, scale(w_k, dt))), heads);
  EXPECT_EQ(compare("q", out[0], moved, {1e-12, 1e-12}), "");
  const Tensor f = linear(silu(linear(q, reshape(w1, {4, width}))), reshape(w2, {width, 4}));
  EXPECT_EQ(compare("k", out[1], add(k, scale(f, dt)), {1e-12, 1e-12}), "");
}

// --- Reversible maps

TEST(CouplingLeapfrog, BackwardsInTimeIsTheSameMapWithMinusDt) {
  for (const std::int64_t query_heads : {2, 4}) {
    for (const int steps : {1, 3, 7}) {
      Tensors in = coupling_inputs(Map::leapfrog, {2, 37, query_heads, 2, 16, 8, 2, 1}, DType::f64);
      const Tensors there = fused(Map::leapfrog, in, steps);
      EXPECT_NE(compare("q", there[0], in[0], {1e-3, 1e-3}), "");
      const Tensors back =
          fused(Map::leapfrog, {there[0], there[1], in[2], in[3], scale(in[4], -1)}, steps);
      EXPECT_EQ(compare("q", back[0], in[0], {0, 1e-12}), "");
      EXPECT_EQ(compare("k", back[1], in[1], {0, 1e-12}), "");
    }
  }
}

// q = q' - dt k', then k = k' - dt f(q): what the same op with -dt does to (q, k') first.
TEST(CouplingSymplecticEuler, TheInverseIsDriftThenKick) {
  const int steps = 5;
  const Tensors in = coupling_inputs(Map::symplectic_euler, {2, 37, 2, 2, 16, 8, 2, 1}, DType::f64);
  Tensors pair = fused(Map::symplectic_euler, in, steps);
  const Tensor minus_dt = scale(in[4], -1);
  for (int n = 0; n < steps; ++n) {
    pair[0] = add(pair[0], mul(pair[1], reshape(minus_dt, {1, 1, 2, 1})));
    pair[1] = fused(Map::symplectic_euler, {pair[0], pair[1], in[2], in[3], minus_dt}, 1)[1];
  }
  EXPECT_EQ(compare("q", pair[0], in[0], {0, 1e-12}), "");
  EXPECT_EQ(compare("k", pair[1], in[1], {0, 1e-12}), "");
}

// q = (q' - t2(k')) exp(-s2(k')), then k = (k' - t1(q)) exp(-s1(q)).
TEST(CouplingAffine, TheInverseUndoesTheHalvesInTurn) {
  const int steps = 3;
  const std::int64_t width = 16;
  const Tensors in = coupling_inputs(Map::affine, {2, 19, 1, 1, width, 8, 1, 1}, DType::f64);
  const Tensors there = fused(Map::affine, in, steps);
  Tensor q = there[0], k = there[1];
  const auto undo = [&](std::int64_t net, const Tensor& x, const Tensor& y) {
    const Tensor w1 = reshape(slice(in[2], 1, net, net + 1), {8, width});
    const Tensor w2 = reshape(slice(in[3], 1, net, net + 1), {2 * width, 8});
    const Tensor out = linear(silu(linear(x, w1)), w2);
    const Tensor s = tanh_of(slice(out, 3, 0, width)), t = slice(out, 3, width, 2 * width);
    return mul(add(y, scale(t, -1)), exp(scale(s, -1)));
  };
  for (int n = 0; n < steps; ++n) {
    q = undo(1, k, q);
    k = undo(0, q, k);
  }
  EXPECT_EQ(compare("q", q, in[0], {0, 1e-12}), "");
  EXPECT_EQ(compare("k", k, in[1], {0, 1e-12}), "");
}

using Matrix = std::vector<std::vector<double>>;

// The derivative of f at x, by central differences.
template <class F>
Matrix jacobian(F f, const std::vector<double>& x) {
  const double h = 1e-5;
  Matrix j(x.size(), std::vector<double>(x.size()));
  for (std::size_t column = 0; column < x.size(); ++column) {
    std::vector<double> up = x, down = x;
    up[column] += h;
    down[column] -= h;
    const std::vector<double> above = f(up), below = f(down);
    for (std::size_t i = 0; i < x.size(); ++i) j[i][column] = (above[i] - below[i]) / (2 * h);
  }
  return j;
}

// log |det|, by elimination.
double log_determinant(Matrix m) {
  double log_det = 0;
  for (std::size_t j = 0; j < m.size(); ++j) {
    std::size_t pivot = j;
    for (std::size_t i = j; i < m.size(); ++i) {
      if (std::abs(m[i][j]) > std::abs(m[pivot][j])) pivot = i;
    }
    std::swap(m[j], m[pivot]);
    log_det += std::log(std::abs(m[j][j]));
    for (std::size_t i = j + 1; i < m.size(); ++i) {
      const double factor = m[i][j] / m[j][j];
      for (std::size_t c = j; c < m.size(); ++c) m[i][c] -= factor * m[j][c];
    }
  }
  return log_det;
}

// Of the map of one token's pair.
double log_determinant(Map map, const Tensors& in, int steps) {
  std::vector<double> pair = values(in[0]);
  const std::vector<double> k = values(in[1]);
  pair.insert(pair.end(), k.begin(), k.end());
  const std::int64_t width = in[0].size(3);
  const auto couple = [&](const std::vector<double>& x) {
    Tensors moved = in;
    for (const std::size_t i : {0, 1}) {
      moved[i] = clone(in[i]);
      std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(i) * width, width,
                  moved[i].mutable_data<double>());
    }
    const Tensors out = fused(map, moved, steps);
    std::vector<double> all = values(out[0]);
    const std::vector<double> k_out = values(out[1]);
    all.insert(all.end(), k_out.begin(), k_out.end());
    return all;
  };
  return log_determinant(jacobian(couple, pair));
}

// log |det(I + factor J)|, J the derivative of f(x) = W2 silu(W1 x).
double log_determinant_of_net(const Tensors& in, const Tensor& at, double factor) {
  const std::int64_t width = at.size(3);
  const Tensor w1 = reshape(in[2], {in[2].size(1), width});
  const Tensor w2 = reshape(in[3], {width, in[2].size(1)});
  const auto f = [&](const std::vector<double>& x) {
    Tensor row = Tensor::empty({1, width}, DType::f64);
    std::copy(x.begin(), x.end(), row.mutable_data<double>());
    return values(linear(silu(linear(row, w1)), w2));
  };
  Matrix m = jacobian(f, values(at));
  for (std::size_t i = 0; i < m.size(); ++i) {
    for (std::size_t j = 0; j < m.size(); ++j) m[i][j] = factor * m[i][j] + (i == j ? 1 : 0);
  }
  return log_determinant(m);
}

TEST(CouplingDeterminant, OfTheMapsThatAreNotReversible) {
  const double dt = 0.7;
  for (const Map map : {Map::euler, Map::uncoupled, Map::uncoupled_k}) {
    Tensors in = coupling_inputs(map, {1, 1, 1, 1, 6, 5, 1, 1}, DType::f64);
    in[4] = Tensor::full({1}, dt, DType::f64);
    const double want = log_determinant_of_net(in, in[map == Map::uncoupled_k ? 1 : 0],
                                               map == Map::euler ? -dt * dt : dt);
    EXPECT_GT(std::abs(want), 1e-3) << name_of(map);
    EXPECT_NEAR(log_determinant(map, in, 1), want, 1e-8) << name_of(map);
  }
}

TEST(CouplingDeterminant, OneForTheReversibleMapsNotForEuler) {
  for (const int steps : {1, 3}) {
    for (const Map map :
         {Map::euler, Map::leapfrog, Map::symplectic_euler, Map::hamiltonian_potential}) {
      Tensors in = coupling_inputs(map, {1, 1, 1, 1, 6, 5, 1, 1}, DType::f64);
      in[4] = Tensor::full({1}, 0.7, DType::f64);
      const double log_det = log_determinant(map, in, steps);
      if (map == Map::euler) {
        EXPECT_GT(std::abs(log_det), 1e-3);
      } else {
        EXPECT_NEAR(log_det, 0, 1e-8) << name_of(map) << ", steps " << steps;
      }
    }
  }
}

TEST(CouplingDeterminant, OfAffineIsTheSumOfItsLogScales) {
  for (const int steps : {1, 3}) {
    const Tensors in = coupling_inputs(Map::affine, {1, 1, 1, 1, 6, 5, 1, 1}, DType::f64);
    CompositeHead head(in, 0);
    for (int n = 0; n < steps; ++n) head.step(Map::affine);
    double want = 0;
    for (const Tensor& s : head.log_scales) {
      for (const double v : values(s)) want += v;
    }
    EXPECT_GT(std::abs(want), 0.1);
    EXPECT_NEAR(log_determinant(Map::affine, in, steps), want, 1e-8);
  }
}

// --- affine

TEST(CouplingAffine, AZeroLastLayerIsTheIdentity) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const bool run_back : {false, true}) {
      Tensors in = coupling_inputs(Map::affine, {2, 37, 4, 2, 16, 8, 2, 1}, dtype);
      in[3] = Tensor::zeros(in[3].shape(), dtype);
      const Tensors cotangents{convert(random_tensor(in[0].shape(), -1, 1, 5), dtype),
                               convert(random_tensor(in[1].shape(), -1, 1, 6), dtype)};
      const Result result = run(fused_row(Map::affine, 3, run_back), in, cotangents);
      EXPECT_EQ(compare("q", result.outputs[0], in[0], {}), "");
      EXPECT_EQ(compare("k", result.outputs[1], in[1], {}), "");
      EXPECT_EQ(compare("gq", result.grads[0], cotangents[0], {}), "");
      EXPECT_EQ(compare("gk", result.grads[1], cotangents[1], {}), "");
      // The first layer learns once the last one is not zero any more.
      EXPECT_EQ(compare("w1", result.grads[2], Tensor::zeros(in[2].shape(), dtype), {}), "");
      EXPECT_NE(compare("w2", result.grads[3], Tensor::zeros(in[3].shape(), dtype), {0, 1e-2}), "");
    }
  }
}

// However large the nets' outputs, a step scales by e^-1 to e: what one key has more than another
// of the same query grows or shrinks by no more.
TEST(CouplingAffine, ScalesAreBounded) {
  Tensors in = coupling_inputs(Map::affine, {1, 9, 2, 2, 8, 4, 2, 1}, DType::f64);
  in[3] = scale(in[3], 1e4);
  Tensors other = in;
  other[1] = add(in[1], Tensor::full({1}, 1, DType::f64));
  const std::vector<double> a = values(fused(Map::affine, in, 1)[1]);
  const std::vector<double> b = values(fused(Map::affine, other, 1)[1]);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_GE(b[i] - a[i], std::exp(-1) - 1e-8);
    EXPECT_LE(b[i] - a[i], std::exp(1) + 1e-8);
  }
}

// --- uncoupled

TEST(CouplingUncoupled, TheOtherTensorComesBackAsItIs) {
  for (const Map map : {Map::uncoupled, Map::uncoupled_k}) {
    const std::size_t still = map == Map::uncoupled ? 1 : 0;
    Tensors in = coupling_inputs(map, {2, 11, 4, 2, 16, 8, 2, 1}, DType::f32);
    for (Tensor& t : in) set_requires_grad(t);
    const Tensors out = fused(map, in, 3);
    EXPECT_EQ(out[still].data<float>(), in[still].data<float>());
    EXPECT_EQ(compare("", out[still], in[still], {}), "");
    const Tensors cotangents{convert(random_tensor(out[0].shape(), -1, 1, 5), DType::f32),
                             convert(random_tensor(out[1].shape(), -1, 1, 6), DType::f32)};
    backward(weighted_sum(out, cotangents));
    EXPECT_EQ(compare("gradient", grad(in[still]), cotangents[still], {}), "");
    EXPECT_NE(compare("gradient", grad(in[1 - still]), cotangents[1 - still], {1e-3, 1e-3}), "");
  }
}

// --- Groups of queries

class CouplingGroups : public testing::TestWithParam<Map> {};
INSTANTIATE_TEST_SUITE_P(Maps, CouplingGroups, testing::ValuesIn(kMaps),
                         [](const auto& test) { return name_of(test.param); });

Tensor group_mean(const Tensor& q, std::int64_t key_heads) {
  const std::int64_t group = q.size(2) / key_heads;
  const Shape split{q.size(0), q.size(1), key_heads, group, q.size(3)};
  return scale(sum(reshape(contiguous(q), split), {3}), 1.0 / static_cast<double>(group));
}

// The rule for grouped queries: the pair (mean of the queries, key) evolves as if it were one head.
TEST_P(CouplingGroups, TheMeanOfAGroupMovesAsOneQuery) {
  const Map map = GetParam();
  for (const int steps : {1, 3}) {
    Tensors in = coupling_inputs(map, {2, 13, 6, 2, 16, 8, 2, 1}, DType::f64);
    const Tensors grouped = fused(map, in, steps);
    in[0] = group_mean(in[0], 2);
    const Tensors single = fused(map, in, steps);
    EXPECT_EQ(compare("mean of q", group_mean(grouped[0], 2), single[0], {1e-12, 1e-12}), "");
    EXPECT_EQ(compare("k", grouped[1], single[1], {1e-12, 1e-12}), "");
  }
}

}  // namespace
}  // namespace duet::test
