// The rows of rope; the oracle computes each angle anew instead of reading a table.
#include <cmath>

#include "tests/ops/op_cases.h"

namespace duet::test {
namespace {

OpCase row(const std::string& name, const Shape& x, double theta, std::int64_t position,
           std::int64_t spare, const std::string& golden = "") {
  OpCase c;
  c.name = name;
  c.inputs = {x};
  c.call = [=](const Tensors& in) {
    const DType dtype = in[0].dtype() == DType::f64 ? DType::f64 : DType::f32;
    const Tensor table =
        rope_table(position + in[0].size(1) + spare, in[0].size(3), theta, dtype, in[0].device());
    return Tensors{rope(in[0], table, position)};
  };
  c.oracle = [=](const Tensors& in) {
    const Tensor& t = in[0];
    const std::int64_t heads = t.size(2), width = t.size(3);
    Tensor out = Tensor::empty_like(t);
    const double* p = t.data<double>();
    double* y = out.mutable_data<double>();
    for (std::int64_t n = 0; n < t.numel(); ++n) {
      const std::int64_t i = n % width, time = n / (width * heads) % t.size(1);
      const bool first = i < width / 2;
      const std::int64_t pair = first ? i : i - width / 2;
      const double angle =
          static_cast<double>(position + time) *
          std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(width));
      const double other = first ? -p[n + width / 2] : p[n - width / 2];
      y[n] = p[n] * std::cos(angle) + other * std::sin(angle);
    }
    return Tensors{out};
  };
  c.saved_bytes = 4 * (position + x[1] + spare) * x[3];  // the table
  c.empty_ok = true;
  c.bench = {{1, 512, 8, 64}};
  c.golden = golden;
  return c;
}

// The shape of the input says how long and for what width.
OpCase table_row() {
  OpCase c;
  c.name = "rope_table";
  c.inputs = {{7, 10}};
  c.differentiable = false;
  c.specials = Specials::none;  // the values of the input do not matter
  c.call = [](const Tensors& in) {
    return Tensors{rope_table(in[0].size(0), in[0].size(1), 10000, in[0].dtype(), in[0].device())};
  };
  c.oracle = [](const Tensors& in) {
    const std::int64_t length = in[0].size(0), half = in[0].size(1) / 2;
    Tensor out = Tensor::empty({length, 2, half}, DType::f64);
    for (std::int64_t t = 0; t < length; ++t) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(t) *
                             std::pow(10000, -static_cast<double>(i) / static_cast<double>(half));
        out.mutable_data<double>()[t * 2 * half + i] = std::cos(angle);
        out.mutable_data<double>()[t * 2 * half + half + i] = std::sin(angle);
      }
    }
    return Tensors{out};
  };
  c.rtol = c.atol = 1e-7;
  c.saved_bytes = 0;
  c.bench = {{1024, 64}};
  return c;
}

}  // namespace

std::vector<OpCase> rope_cases() {
  return {
      table_row(),
      row("rope", {2, 5, 3, 8}, 10000, 0, 0, "rope"),
      row("rope_position", {2, 4, 2, 6}, 500, 11, 2),
      row("rope_wide", {1, 9, 2, 52}, 10000, 3, 1),
      row("rope_pair", {2, 3, 1, 2}, 10000, 0, 0),
  };
}

}  // namespace duet::test
