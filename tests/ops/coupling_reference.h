// The couplings for tests: inputs as a model has them, the fused op, and the same written with
// plain ops, head by head.
#pragma once

#include <cmath>
#include <string>
#include <utility>

#include "runtime/memory_ops.h"
#include "tests/ops/harness.h"

namespace duet::test {

enum class Map {
  euler,
  leapfrog,
  symplectic_euler,
  uncoupled,
  uncoupled_k,
  affine,
  hamiltonian_potential  // not fused: composed by autograd
};
inline constexpr Map kMaps[] = {
    Map::euler,       Map::leapfrog, Map::symplectic_euler,     Map::uncoupled,
    Map::uncoupled_k, Map::affine,   Map::hamiltonian_potential};
inline constexpr Map kFusedMaps[] = {Map::euler,     Map::leapfrog,    Map::symplectic_euler,
                                     Map::uncoupled, Map::uncoupled_k, Map::affine};
inline constexpr Map kInvertibleMaps[] = {Map::leapfrog, Map::symplectic_euler, Map::affine};
inline bool is_invertible(Map map) {
  return map == Map::leapfrog || map == Map::symplectic_euler || map == Map::affine;
}

inline std::string name_of(Map map) {
  const char* names[] = {"euler",       "leapfrog", "symplectic_euler",     "uncoupled",
                         "uncoupled_k", "affine",   "hamiltonian_potential"};
  return std::string("coupling_") + names[static_cast<int>(map)];
}

struct CouplingSetup {
  std::int64_t batch, time, query_heads, key_heads, width, hidden, nets;
  int steps;
  bool own_dt = false;  // each head its own, though one net serves all
};

// q and k as views into one buffer [B, T, Hq + 2 Hkv, D], as the model has them; w1, w2, dt. affine
// has wider w1 and w2, and no dt; the potential has one output.
inline Tensors coupling_inputs(Map map, const CouplingSetup& s, DType dtype) {
  const Tensor qkv = convert(
      random_tensor({s.batch, s.time, s.query_heads + 2 * s.key_heads, s.width}, -1, 1, 1), dtype);
  const double spread = 1 / std::sqrt(static_cast<double>(s.width));
  const bool affine = map == Map::affine;
  // affine multiplies: with larger weights four steps of it amplify rounding beyond any check.
  const double deep = affine ? 1 / std::sqrt(static_cast<double>(s.hidden)) : 1;
  const Shape w1 = affine ? Shape{s.nets, 2, s.hidden, s.width} : Shape{s.nets, s.hidden, s.width};
  const std::int64_t outputs = map == Map::hamiltonian_potential ? 1 : s.width;
  const Shape w2 =
      affine ? Shape{s.nets, 2, 2 * s.width, s.hidden} : Shape{s.nets, outputs, s.hidden};
  Tensors in{qkv.slice_view(2, 0, s.query_heads),
             qkv.slice_view(2, s.query_heads, s.query_heads + s.key_heads),
             convert(random_tensor(w1, -2 * spread, 2 * spread, 2), dtype),
             convert(random_tensor(w2, -deep, deep, 3), dtype)};
  const std::int64_t step_sizes = s.own_dt ? s.key_heads : s.nets;
  if (!affine) in.push_back(convert(random_tensor({step_sizes}, 0.05, 0.3, 4), dtype));
  return in;
}

inline Tensors fused(Map map, const Tensors& in, const CouplingOptions& options) {
  const auto step = [&](auto op) {
    const auto [q, k] = op(in[0], in[1], in[2], in[3], in[4], options);
    return Tensors{q, k};
  };
  switch (map) {
    case Map::euler:
      return step(coupling_euler);
    case Map::leapfrog:
      return step(coupling_leapfrog);
    case Map::symplectic_euler:
      return step(coupling_symplectic_euler);
    case Map::uncoupled:
      return step(coupling_uncoupled);
    case Map::uncoupled_k:
      return step(coupling_uncoupled_k);
    case Map::hamiltonian_potential:
      return step(coupling_hamiltonian_potential);
    case Map::affine:
      break;
  }
  const auto [q, k] = coupling_affine(in[0], in[1], in[2], in[3], options);
  return {q, k};
}
inline Tensors fused(Map map, const Tensors& in, int steps, bool run_back = false) {
  return fused(map, in, CouplingOptions{steps, run_back});
}

// tanh(x) = 2 sigmoid(2 x) - 1
inline Tensor tanh_of(const Tensor& x) {
  return sub(scale(sigmoid(scale(x, 2)), 2), Tensor::full({1}, 1, x.dtype()));
}

// One key head: the queries that share it, its key, its net.
class CompositeHead {
 public:
  CompositeHead(const Tensors& in, std::int64_t head) {
    const std::int64_t group = in[0].size(2) / in[1].size(2);
    const std::int64_t net = in[2].size(0) == 1 ? 0 : head;
    for (std::int64_t i = head * group; i < (head + 1) * group; ++i) {
      q.push_back(slice(in[0], 2, i, i + 1));
    }
    k = slice(in[1], 2, head, head + 1);
    w1_ = slice(in[2], 0, net, net + 1);
    w2_ = slice(in[3], 0, net, net + 1);
    if (in.size() == 4) return;
    const std::int64_t own = in[4].size(0) == 1 ? 0 : head;
    dt_ = slice(in[4], 0, own, own + 1);
  }

  void step(Map map) {
    const Tensor old_k = k;
    switch (map) {
      case Map::euler:
        move_key(1, f(mean_query()));
        return move_queries(old_k);
      case Map::leapfrog:
        move_key(0.5, f(mean_query()));
        move_queries(k);
        return move_key(0.5, f(mean_query()));
      case Map::symplectic_euler:
        move_key(1, f(mean_query()));
        return move_queries(k);
      case Map::uncoupled:
        return move_queries(f(mean_query()));
      case Map::uncoupled_k:
        return move_key(1, f(k));
      case Map::hamiltonian_potential:
        move_key(0.5, force(mean_query()));
        move_queries(k);
        return move_key(0.5, force(mean_query()));
      case Map::affine:
        const auto [s1, t1] = scale_and_shift(0, mean_query());
        k = add(mul(k, exp(s1)), t1);
        const auto [s2, t2] = scale_and_shift(1, k);
        for (Tensor& query : q) query = add(mul(query, exp(s2)), t2);
        log_scales.insert(log_scales.end(), {s1, s2});
    }
  }

  Tensors q;
  Tensor k;            // [B, T, 1, D]
  Tensors log_scales;  // affine: s1 and s2 of every step

 private:
  Tensor matrix(const Tensor& w) const { return reshape(w, {w.size(-2), w.size(-1)}); }
  Tensor mean_query() const {
    Tensor total = q[0];
    for (std::size_t i = 1; i < q.size(); ++i) total = add(total, q[i]);
    return scale(total, 1.0 / static_cast<double>(q.size()));
  }
  Tensor f(const Tensor& x) const { return linear(silu(linear(x, matrix(w1_))), matrix(w2_)); }
  // -dU/dx of U(x) = w2 silu(w1 x), by hand: -w1^T (silu'(h) * w2), h = w1 x.
  Tensor force(const Tensor& x) const {
    const Tensor h = linear(x, matrix(w1_)), s = sigmoid(h);
    const Tensor one = Tensor::full({1}, 1, x.dtype());
    const Tensor slope = mul(s, add(one, mul(h, sub(one, s))));
    return scale(linear(mul(slope, matrix(w2_)), transpose(matrix(w1_), 0, 1)), -1);
  }
  void move_key(double share, const Tensor& along) { k = add(k, scale(mul(along, dt_), share)); }
  void move_queries(const Tensor& along) {
    const Tensor displacement = mul(along, dt_);
    for (Tensor& query : q) query = add(query, displacement);
  }
  std::pair<Tensor, Tensor> scale_and_shift(std::int64_t net, const Tensor& x) const {
    const Tensor w1 = matrix(slice(w1_, 1, net, net + 1));
    const Tensor w2 = matrix(slice(w2_, 1, net, net + 1));
    const Tensor out = linear(silu(linear(x, w1)), w2);
    const std::int64_t width = x.size(3);
    return {tanh_of(slice(out, 3, 0, width)), slice(out, 3, width, 2 * width)};
  }

  Tensor w1_, w2_, dt_;
};

inline Tensors composite(Map map, const Tensors& in, int steps) {
  Tensors all_q, all_k;
  for (std::int64_t i = 0; i < in[1].size(2); ++i) {
    CompositeHead head(in, i);
    for (int n = 0; n < steps; ++n) head.step(map);
    all_q.insert(all_q.end(), head.q.begin(), head.q.end());
    all_k.push_back(head.k);
  }
  return {cat(all_q, 2), cat(all_k, 2)};
}

inline OpCase fused_row(Map map, int steps, bool run_back = false) {
  OpCase row;
  row.name = name_of(map);
  row.call = [=](const Tensors& in) { return fused(map, in, steps, run_back); };
  return row;
}
inline OpCase composite_row(Map map, int steps) {
  OpCase row;
  row.name = name_of(map);
  row.call = [=](const Tensors& in) { return composite(map, in, steps); };
  return row;
}

}  // namespace duet::test
