// Rows of the coupling ops.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "tests/ops/op_case.h"

namespace duet::test {
namespace {

using Numbers = std::vector<double>;

// W [rows, columns] x
Numbers times(const double* w, std::size_t rows, const Numbers& x) {
  Numbers y(rows);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < x.size(); ++j) y[i] += w[i * x.size() + j] * x[j];
  }
  return y;
}
// W2 silu(W1 x), `outputs` rows in W2
Numbers net(const double* w1, const double* w2, std::size_t hidden, std::size_t outputs,
            const Numbers& x) {
  Numbers h = times(w1, hidden, x);
  for (double& v : h) v /= 1 + std::exp(-v);
  return times(w2, outputs, h);
}

// One token of one head: the queries that share it and its key.
struct Pair {
  std::vector<Numbers> q;
  Numbers k;

  Numbers mean() const {
    Numbers x(k.size());
    for (const Numbers& query : q) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] += query[i] / static_cast<double>(q.size());
      }
    }
    return x;
  }
  void move_queries(double by, const Numbers& along) {
    for (Numbers& query : q) {
      for (std::size_t i = 0; i < along.size(); ++i) query[i] += by * along[i];
    }
  }
  void move_key(double by, const Numbers& along) {
    for (std::size_t i = 0; i < along.size(); ++i) k[i] += by * along[i];
  }
};

// The parameters of one head.
struct Weights {
  const double *w1, *w2;
  double dt;
  std::size_t hidden, width;

  Numbers f(const Numbers& x) const { return net(w1, w2, hidden, width, x); }
  // -dU/dx of U(x) = w2 silu(w1 x)
  Numbers force(const Numbers& x) const {
    const Numbers h = times(w1, hidden, x);
    Numbers f(width);
    for (std::size_t i = 0; i < hidden; ++i) {
      const double s = 1 / (1 + std::exp(-h[i]));
      for (std::size_t j = 0; j < width; ++j) {
        f[j] -= w1[i * width + j] * s * (1 + h[i] * (1 - s)) * w2[i];
      }
    }
    return f;
  }
  // y = y exp(s) + t, s and t from x by net number `half`
  void affine(std::size_t half, const Numbers& x, Numbers& y) const {
    const Numbers out =
        net(w1 + half * hidden * width, w2 + half * 2 * width * hidden, hidden, 2 * width, x);
    for (std::size_t i = 0; i < width; ++i) {
      y[i] = y[i] * std::exp(std::tanh(out[i])) + out[width + i];
    }
  }
};

// One step each, straight from the equations.
using StepOracle = void (*)(const Weights&, Pair&);
void euler(const Weights& w, Pair& p) {
  const Numbers f = w.f(p.mean()), k = p.k;
  p.move_queries(w.dt, k);
  p.move_key(w.dt, f);
}
void leapfrog(const Weights& w, Pair& p) {
  p.move_key(w.dt / 2, w.f(p.mean()));
  p.move_queries(w.dt, p.k);
  p.move_key(w.dt / 2, w.f(p.mean()));
}
void symplectic_euler(const Weights& w, Pair& p) {
  p.move_key(w.dt, w.f(p.mean()));
  p.move_queries(w.dt, p.k);
}
void uncoupled(const Weights& w, Pair& p) { p.move_queries(w.dt, w.f(p.mean())); }
void uncoupled_k(const Weights& w, Pair& p) { p.move_key(w.dt, w.f(p.k)); }
void hamiltonian_potential(const Weights& w, Pair& p) {
  p.move_key(w.dt / 2, w.force(p.mean()));
  p.move_queries(w.dt, p.k);
  p.move_key(w.dt / 2, w.force(p.mean()));
}
void affine(const Weights& w, Pair& p) {
  w.affine(0, p.mean(), p.k);
  for (Numbers& query : p.q) w.affine(1, p.k, query);
}

Tensors oracle(const Tensors& in, StepOracle step, int steps) {
  const Shape qs = in[0].shape(), ks = in[1].shape(), w1 = in[2].shape(), w2 = in[3].shape();
  const std::int64_t heads = ks[2], group = qs[2] / heads, width = qs[3];
  Tensor q_out = Tensor::empty(qs, DType::f64), k_out = Tensor::empty(ks, DType::f64);
  for (std::int64_t token = 0; token < qs[0] * qs[1]; ++token) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t net = w1[0] == 1 ? 0 : head;
      const Weights w{in[2].data<double>() + net * (in[2].numel() / w1[0]),
                      in[3].data<double>() + net * (in[3].numel() / w2[0]),
                      in.size() > 4 ? in[4].data<double>()[net] : 0,
                      static_cast<std::size_t>(w1[w1.ndim() - 2]), static_cast<std::size_t>(width)};
      const auto row = [&](const Tensor& t, std::int64_t all, std::int64_t h) {
        return t.data<double>() + (token * all + h) * width;
      };
      Pair p;
      for (std::int64_t h = head * group; h < (head + 1) * group; ++h) {
        p.q.emplace_back(row(in[0], qs[2], h), row(in[0], qs[2], h) + width);
      }
      p.k = Numbers(row(in[1], heads, head), row(in[1], heads, head) + width);
      for (int n = 0; n < steps; ++n) step(w, p);
      for (std::int64_t m = 0; m < group; ++m) {
        std::copy_n(p.q[static_cast<std::size_t>(m)].begin(), width,
                    q_out.mutable_data<double>() + (token * qs[2] + head * group + m) * width);
      }
      std::copy_n(p.k.begin(), width,
                  k_out.mutable_data<double>() + (token * heads + head) * width);
    }
  }
  return {q_out, k_out};
}

struct Sizes {
  Shape q;
  std::int64_t key_heads, nets, hidden;
  CouplingOptions options;
  bool rotated = false;  // by RoPE, from position kPosition on

  static constexpr std::int64_t kPosition = 2, kPastEnd = 1;  // rows of the table before and behind
  static constexpr double kTheta = 10;

  Shape k() const { return {q[0], q[1], key_heads, q.back()}; }
  CouplingOptions options_for(const Tensor& x) const {
    CouplingOptions all = options;
    if (rotated) {
      // A wrong dtype is the op's to refuse, and not the table's.
      const bool f64 = x.dtype() == DType::f64 && x.device().type != DeviceType::cuda;
      all.rotation = rope_table(kPosition + x.size(1) + kPastEnd, x.size(3), kTheta,
                                f64 ? DType::f64 : DType::f32, x.device());
      all.position = kPosition;
    }
    return all;
  }
  // Bytes of the rotation that a coupling keeps, and that rope() keeps for each tensor.
  std::int64_t rotated_bytes() const { return rotated ? q[1] * q.back() * 4 : 0; }
  std::int64_t table_bytes() const {
    return rotated ? (kPosition + q[1] + kPastEnd) * q.back() * 4 : 0;
  }
};

// x [B, T, H, D]: the pair (i, i + D/2) of a token turns by position * theta^(-2i/D).
void rotate(const Tensor& x) {
  const std::int64_t heads = x.size(2), width = x.size(3), half = width / 2;
  double* row = Tensor(x).mutable_data<double>();
  for (std::int64_t n = 0; n < x.size(0) * x.size(1) * heads; ++n, row += width) {
    const auto position = static_cast<double>(Sizes::kPosition + n / heads % x.size(1));
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = position * std::pow(Sizes::kTheta, -2.0 * static_cast<double>(i) /
                                                                  static_cast<double>(width));
      const double x1 = row[i], x2 = row[half + i];
      row[i] = x1 * std::cos(angle) - x2 * std::sin(angle);
      row[half + i] = x2 * std::cos(angle) + x1 * std::sin(angle);
    }
  }
}

OpCase row_of(const std::string& name, const Sizes& s, StepOracle step) {
  OpCase row;
  row.name = name;
  row.inputs = {s.q, s.k()};
  const int steps = s.options.steps;
  const bool rotated = s.rotated;
  row.oracle = [step, steps, rotated](const Tensors& in) {
    const Tensors out = oracle(in, step, steps);
    if (rotated) std::ranges::for_each(out, rotate);
    return out;
  };
  // The steps move a group by its mean, and so spread NaN to its queries. Alone in its group it
  // goes where the formula takes it.
  const bool alone = s.q[2] == s.key_heads;
  row.specials = alone ? Specials::nan : Specials::none;
  row.low = -1;
  row.high = 1;
  row.empty_ok = true;
  return row;
}

using StepOp = std::array<Tensor, 2> (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                         const Tensor&, const CouplingOptions&);

OpCase step_row(const std::string& name, StepOp op, StepOracle step, const Sizes& s) {
  OpCase row = row_of(name, s, step);
  const std::int64_t width = s.q.back();
  row.inputs.insert(row.inputs.end(),
                    {{s.nets, s.hidden, width}, {s.nets, width, s.hidden}, {s.nets}});
  row.call = [op, s](const Tensors& in) {
    const auto [q_out, k_out] = op(in[0], in[1], in[2], in[3], in[4], s.options_for(in[0]));
    return Tensors{q_out, k_out};
  };
  // The pair, before or after the steps, whatever their number; of the uncoupled, what moves.
  const std::int64_t pair = (op == coupling_uncoupled_k ? 0 : s.q.numel()) +
                            (op == coupling_uncoupled ? 0 : s.k().numel());
  row.bench = {{1, 512, 8, 64}, {1, 512, 8, 64}, {8, 32, 64}, {8, 64, 32}, {8}};
  const double nets = op == coupling_leapfrog ? 2 : 1;  // evaluations of f a step
  row.bench_flops = nets * s.options.steps * 512 * 8 * 4 * 32 * 64;
  row.saved_bytes = (pair + 2 * s.nets * s.hidden * width + s.nets) * 4 + s.rotated_bytes();
  // rope() rotates what the coupling passes on.
  if (op == coupling_uncoupled || op == coupling_uncoupled_k) row.saved_bytes += s.table_bytes();
  return row;
}

// Composed of ops: each keeps what it needs, so that the bytes grow with the steps.
OpCase potential_row(const std::string& name, const Sizes& s) {
  OpCase row = row_of(name, s, hamiltonian_potential);
  const std::int64_t width = s.q.back();
  row.inputs.insert(row.inputs.end(), {{s.nets, s.hidden, width}, {s.nets, 1, s.hidden}, {s.nets}});
  row.call = [s](const Tensors& in) {
    const auto [q_out, k_out] =
        coupling_hamiltonian_potential(in[0], in[1], in[2], in[3], in[4], s.options_for(in[0]));
    return Tensors{q_out, k_out};
  };
  row.bench = {{1, 512, 8, 64}, {1, 512, 8, 64}, {8, 32, 64}, {8, 1, 32}, {8}};
  row.bench_flops = 2.0 * s.options.steps * 512 * 8 * 4 * 32 * 65;
  const std::int64_t pairs = s.q[0] * s.q[1] * s.key_heads, key = pairs * width;
  const std::int64_t w1 = s.nets * s.hidden * width, w2 = s.nets * s.hidden;
  // x, w1 | h, the gradient at silu's output | that at h, w1 | dU = -1, w2
  const std::int64_t force = key + w1 + 2 * pairs * s.hidden + pairs * s.hidden + w1 + pairs + w2;
  const std::int64_t product = key + s.nets;  // with dt
  const std::int64_t n = s.options.steps;
  row.saved_bytes = ((n + 1) * (force + product) + n * product) * 4 + 2 * s.table_bytes();
  return row;
}

OpCase affine_row(const std::string& name, const Sizes& s) {
  OpCase row = row_of(name, s, affine);
  const std::int64_t width = s.q.back();
  row.inputs.insert(row.inputs.end(),
                    {{s.nets, 2, s.hidden, width}, {s.nets, 2, 2 * width, s.hidden}});
  row.call = [s](const Tensors& in) {
    const auto [q_out, k_out] = coupling_affine(in[0], in[1], in[2], in[3], s.options_for(in[0]));
    return Tensors{q_out, k_out};
  };
  row.bench = {{1, 512, 8, 64}, {1, 512, 8, 64}, {8, 2, 32, 64}, {8, 2, 128, 32}};
  row.bench_flops = 2.0 * s.options.steps * 512 * 8 * 6 * 32 * 64;
  row.saved_bytes =
      (s.q.numel() + s.k().numel() + 6 * s.nets * s.hidden * width) * 4 + s.rotated_bytes();
  return row;
}

}  // namespace

std::vector<OpCase> coupling_cases() {
  struct Coupling {
    const char* name;
    std::function<OpCase(const std::string&, const Sizes&)> row;
    bool invertible;
  };
  const auto by_steps = [](StepOp op, StepOracle step) {
    return [=](const std::string& name, const Sizes& s) { return step_row(name, op, step, s); };
  };
  const Coupling couplings[] = {
      {"coupling_euler", by_steps(coupling_euler, euler), false},
      {"coupling_leapfrog", by_steps(coupling_leapfrog, leapfrog), true},
      {"coupling_symplectic_euler", by_steps(coupling_symplectic_euler, symplectic_euler), true},
      {"coupling_uncoupled", by_steps(coupling_uncoupled, uncoupled), false},
      {"coupling_uncoupled_k", by_steps(coupling_uncoupled_k, uncoupled_k), false},
      {"coupling_affine", affine_row, true},
      {"coupling_hamiltonian_potential", potential_row, false},
  };
  std::vector<OpCase> rows;
  for (const Coupling& c : couplings) {
    const std::string name = c.name;
    const auto add = [&](const std::string& suffix, const Sizes& s) {
      rows.push_back(c.row(name + suffix, s));
    };
    // A batch of another size than the number of nets: one check changes it alone.
    add("", {{3, 3, 2, 4}, 2, 2, 3, {1}});
    add("_gqa", {{3, 3, 4, 4}, 2, 2, 3, {1}});
    add("_steps3", {{3, 3, 2, 4}, 2, 2, 3, {3}});
    for (std::size_t i = rows.size() - 3; i < rows.size(); ++i) rows[i].golden = rows[i].name;
    add("_shared_net", {{2, 3, 3, 4}, 3, 1, 2, {2}});
    add("_gqa_steps2", {{2, 5, 6, 3}, 2, 1, 4, {2}});
    add("_odd_sizes", {{3, 13, 1, 9}, 1, 1, 11, {1}});
    // Heads of 8 are rotated by the coupling's kernel on a GPU, heads of 6 by rope's.
    add("_rotated", {{3, 5, 2, 8}, 2, 2, 3, {1}, true});
    add("_rotated_gqa_steps2", {{2, 5, 6, 8}, 2, 1, 4, {2}, true});
    add("_rotated_narrow", {{3, 3, 2, 6}, 2, 2, 3, {1}, true});
    if (!c.invertible) continue;
    add("_run_back", {{3, 3, 2, 4}, 2, 2, 3, {1, true}});
    add("_run_back_gqa_steps3", {{3, 3, 4, 4}, 2, 2, 3, {3, true}});
    add("_rotated_run_back", {{3, 5, 2, 8}, 2, 2, 3, {1, true}, true});
    add("_rotated_run_back_gqa", {{3, 5, 4, 8}, 2, 2, 3, {1, true}, true});
    for (std::size_t i = rows.size() - 4; i < rows.size(); ++i) {
      rows[i].large = 1;
      rows[i].large_why = "to run back is to subtract: large steps drown in f32 what they added to";
    }
  }
  return rows;
}

}  // namespace duet::test
