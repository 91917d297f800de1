// Rows of ops/pointwise: add, sub, mul, scale, silu, gelu, gelu_tanh, softplus, exp,
// sigmoid, swiglu, dropout.
#include <cmath>

#include "tests/ops/op_cases.h"
#include "tests/ops/oracle.h"

namespace duet::test {
namespace {

using Scalar = double (*)(double);

constexpr RandomKey kKey{1234, 5, 6, kUseDropoutMlp, 7};

// Each has the limit 0 at -infinity, where the formula is infinity times 0.
bool at_lower_end(double x) { return std::isinf(x) && x < 0; }
double silu_of(double x) { return at_lower_end(x) ? 0 : x / (1 + std::exp(-x)); }
double gelu_of(double x) { return at_lower_end(x) ? 0 : x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double softplus_of(double x) { return std::log(1 + std::exp(x)); }
double gelu_tanh_of(double x) {
  if (at_lower_end(x)) return 0;
  const double u = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
  return x * 0.5 * (1 + std::tanh(u));
}

OpCase unary(const std::string& name, const Shape& shape, Tensor (*op)(const Tensor&), Scalar f) {
  OpCase row;
  row.name = name;
  row.inputs = {shape};
  row.call = [op](const Tensors& in) { return Tensors{op(in[0])}; };
  row.oracle = [f](const Tensors& in) {
    Values y = elements(in[0]);
    for (double& v : y) v = f(v);
    return Tensors{tensor_of(in[0].shape(), y)};
  };
  row.low = -6;
  row.high = 6;
  row.rtol = 4e-6;
  row.atol = 1e-7;
  row.grad_rtol = 4e-6;
  row.grad_atol = 1e-6;
  row.saved_bytes = shape.numel() * 4;
  row.empty_ok = shape.ndim() > 0;
  row.bench = {{1024, 1024}};
  return row;
}

// sign -1: sub, as is_mul is false
OpCase binary(const std::string& name, const Shape& a, const Shape& b, bool is_mul,
              double sign = 1) {
  OpCase row;
  row.name = name;
  row.inputs = {a, b};
  row.call = [=](const Tensors& in) {
    if (is_mul) return Tensors{mul(in[0], in[1])};
    return Tensors{sign > 0 ? add(in[0], in[1]) : sub(in[0], in[1])};
  };
  row.oracle = [=](const Tensors& in) {
    const Shape shape = broadcast_shapes(in[0].shape(), in[1].shape(), "oracle");
    const Values a_values = elements(in[0]), b_values = elements(in[1]);
    Values y(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < y.size(); ++i) {
      const Dims index = index_of(shape, static_cast<std::int64_t>(i));
      const double u = a_values[position(in[0].shape(), index)];
      const double v = b_values[position(in[1].shape(), index)];
      y[i] = is_mul ? u * v : u + sign * v;
    }
    return Tensors{tensor_of(shape, y)};
  };
  row.rtol = 1.2e-7;  // one rounding
  row.atol = 0;
  row.grad_rtol = 1e-6;
  row.grad_atol = 1e-6;
  row.saved_bytes = is_mul ? (a.numel() + b.numel()) * 4 : 0;
  row.exact_on_integers = true;
  row.empty_ok = a.ndim() > 0 && a.ndim() >= b.ndim() && a[0] != 1;
  row.broadcasts = a == b;
  row.bench = {{1024, 1024}, {1024, 1024}};
  return row;
}

OpCase scale_row() {
  OpCase row = unary("scale", {3, 5}, nullptr, [](double x) { return 0.75 * x; });
  row.call = [](const Tensors& in) { return Tensors{scale(in[0], 0.75)}; };
  row.saved_bytes = 0;
  row.exact_on_integers = true;
  return row;
}

OpCase swiglu_row(const std::string& name, const Shape& shape) {
  OpCase row = unary(name, shape, swiglu, nullptr);
  row.oracle = [](const Tensors& in) {
    Shape half = in[0].shape();
    const std::int64_t f = half.back() / 2;
    half[half.ndim() - 1] = f;
    const Values x = elements(in[0]);
    Values y;
    for (std::int64_t i = 0; i < half.numel(); ++i) {
      const std::int64_t gate = i / f * 2 * f + i % f;
      const double g = x[static_cast<std::size_t>(gate)];
      y.push_back(silu_of(g) * x[static_cast<std::size_t>(gate + f)]);
    }
    return Tensors{tensor_of(half, y)};
  };
  row.atol = 1e-6;
  row.grad_atol = 4e-6;
  return row;
}

OpCase dropout_row(const std::string& name, const Shape& shape, double p) {
  OpCase row = unary(name, shape, nullptr, nullptr);
  row.call = [p](const Tensors& in) { return Tensors{dropout(in[0], p, kKey)}; };
  row.oracle = [p](const Tensors& in) {
    Values y = elements(in[0]);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const bool keep = random_u32(kKey, i) / 4294967296.0 >= p;
      y[i] = keep ? y[i] / (1 - p) : 0.0;
    }
    return Tensors{tensor_of(in[0].shape(), y)};
  };
  row.saved_bytes = 0;
  return row;
}

}  // namespace

std::vector<OpCase> pointwise_cases() {
  std::vector<OpCase> rows{
      binary("add", {3, 5}, {3, 5}, false),
      binary("add_broadcast", {4, 1, 3}, {2, 1}, false),
      binary("add_row", {4, 5}, {5}, false),
      binary("add_column", {4, 1}, {1, 5}, false),
      binary("add_scalar", {2, 3}, {}, false),
      binary("add_left", {3}, {2, 4, 3}, false),
      binary("sub", {3, 5}, {3, 5}, false, -1),
      binary("sub_broadcast", {4, 1, 3}, {2, 1}, false, -1),
      binary("sub_odd", {7, 19}, {7, 19}, false, -1),
      binary("mul", {3, 5}, {3, 5}, true),
      binary("mul_broadcast", {4, 1, 3}, {2, 1}, true),
      binary("mul_left", {1}, {5, 4}, true),     // C07
      binary("mul_both", {4, 1}, {1, 4}, true),  // C07
      binary("mul_scalar", {}, {2}, true),       // C07
      binary("mul_inner", {2, 1, 3}, {4, 1}, true),
      binary("mul_odd", {7, 19}, {7, 19}, true),  // whole vectors and a tail
      scale_row(),
      unary("silu", {3, 5}, silu, silu_of),
      unary("silu_0d", {}, silu, silu_of),
      unary("silu_odd", {3, 37}, silu, silu_of),
      unary("gelu", {3, 5}, gelu, gelu_of),
      unary("gelu_odd", {3, 37}, gelu, gelu_of),
      unary("gelu_tanh", {3, 5}, gelu_tanh, gelu_tanh_of),
      unary("gelu_tanh_odd", {3, 37}, gelu_tanh, gelu_tanh_of),
      unary("softplus", {3, 5}, softplus, softplus_of),
      unary("exp", {3, 5}, exp, [](double x) { return std::exp(x); }),
      unary("sigmoid", {3, 5}, sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }),
      swiglu_row("swiglu", {3, 8}),
      swiglu_row("swiglu_odd", {2, 3, 38}),
      dropout_row("dropout", {5, 7}, 0.3),
      dropout_row("dropout_row", {41}, 0.5),
  };
  for (OpCase& row : rows) {
    for (const char* name : {"add", "add_broadcast", "mul", "mul_broadcast", "scale", "silu",
                             "gelu", "gelu_tanh", "swiglu", "sub", "exp", "sigmoid"}) {
      if (row.name == name) row.golden = name;
    }
  }
  return rows;
}

}  // namespace duet::test
