// Rows of coupling_euler.
#include <cmath>

#include "tests/ops/op_case.h"

namespace duet::test {
namespace {

// Token by token, head by head, straight from the equations.
Tensors euler_oracle(const Tensors& in, int steps) {
  const Shape qs = in[0].shape(), ks = in[1].shape(), ws = in[2].shape();
  const std::int64_t heads = ks[2], group = heads > 0 ? qs[2] / heads : 1, width = qs[3];
  const std::int64_t hidden = ws[1];
  Tensor q_out = Tensor::empty(qs, DType::f64), k_out = Tensor::empty(ks, DType::f64);
  const auto size = static_cast<std::size_t>(width);
  for (std::int64_t token = 0; token < qs[0] * qs[1]; ++token) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t net = ws[0] == 1 ? 0 : head;
      const double* w1 = in[2].data<double>() + net * hidden * width;
      const double* w2 = in[3].data<double>() + net * hidden * width;
      const double dt = in[4].data<double>()[net];
      const std::int64_t q_at = (token * qs[2] + head * group) * width;
      const std::int64_t k_at = (token * heads + head) * width;
      const double* q_in = in[0].data<double>() + q_at;
      const double* k_in = in[1].data<double>() + k_at;
      std::vector<double> q(q_in, q_in + group * width), k(k_in, k_in + width);
      for (int n = 0; n < steps; ++n) {
        std::vector<double> x(size), f(size);
        for (std::int64_t i = 0; i < group * width; ++i) {
          x[static_cast<std::size_t>(i % width)] +=
              q[static_cast<std::size_t>(i)] / static_cast<double>(group);
        }
        for (std::int64_t j = 0; j < hidden; ++j) {
          double h = 0;
          for (std::size_t i = 0; i < size; ++i) h += w1[j * width + static_cast<int>(i)] * x[i];
          const double a = h / (1 + std::exp(-h));
          for (std::size_t i = 0; i < size; ++i) f[i] += w2[static_cast<int>(i) * hidden + j] * a;
        }
        for (std::size_t i = 0; i < q.size(); ++i) q[i] += dt * k[i % size];
        for (std::size_t i = 0; i < size; ++i) k[i] += dt * f[i];
      }
      std::copy(q.begin(), q.end(), q_out.mutable_data<double>() + q_at);
      std::copy(k.begin(), k.end(), k_out.mutable_data<double>() + k_at);
    }
  }
  return {q_out, k_out};
}

OpCase euler_row(const std::string& name, const Shape& q, std::int64_t key_heads, std::int64_t nets,
                 std::int64_t hidden, int steps) {
  const std::int64_t width = q.back();
  const Shape k{q[0], q[1], key_heads, width};
  OpCase row;
  row.name = name;
  row.inputs = {q, k, {nets, hidden, width}, {nets, width, hidden}, {nets}};
  row.call = [steps](const Tensors& in) {
    const auto [q_out, k_out] = coupling_euler(in[0], in[1], in[2], in[3], in[4], {steps});
    return Tensors{q_out, k_out};
  };
  row.oracle = [steps](const Tensors& in) { return euler_oracle(in, steps); };
  row.low = -1;
  row.high = 1;
  // q, k and the parameters, whatever the number of steps
  row.saved_bytes = (q.numel() + k.numel() + 2 * nets * hidden * width + nets) * 4;
  row.empty_ok = true;
  return row;
}

}  // namespace

std::vector<OpCase> coupling_cases() {
  std::vector<OpCase> rows{
      euler_row("coupling_euler", {2, 3, 2, 4}, 2, 2, 3, 1),
      euler_row("coupling_euler_gqa", {2, 3, 4, 4}, 2, 2, 3, 1),
      euler_row("coupling_euler_steps3", {2, 3, 2, 4}, 2, 2, 3, 3),
  };
  for (OpCase& row : rows) row.golden = row.name;
  rows.push_back(euler_row("coupling_euler_shared_net", {2, 3, 3, 4}, 3, 1, 2, 2));
  rows.push_back(euler_row("coupling_euler_gqa_steps2", {1, 5, 6, 3}, 2, 1, 4, 2));
  rows.push_back(euler_row("coupling_euler_odd_sizes", {3, 13, 1, 9}, 1, 1, 11, 1));
  return rows;
}

}  // namespace duet::test
