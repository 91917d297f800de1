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
  c.golden = golden;
  return c;
}

}  // namespace

std::vector<OpCase> rope_cases() {
  return {
      row("rope", {2, 5, 3, 8}, 10000, 0, 0, "rope"),
      row("rope_table_position", {2, 4, 2, 6}, 500, 11, 2),
      row("rope_wide", {1, 9, 2, 52}, 10000, 3, 1),
      row("rope_pair", {2, 3, 1, 2}, 10000, 0, 0),
  };
}

}  // namespace duet::test
