// Rows of softmax.
#include <algorithm>
#include <cmath>

#include "tests/ops/op_case.h"

namespace duet::test {
namespace {

Tensors softmax_oracle(const Tensors& in) {
  const std::int64_t width = in[0].size(-1);
  const double* x = in[0].data<double>();
  Tensor out = Tensor::empty_like(in[0]);
  double* y = out.mutable_data<double>();
  for (std::int64_t i = 0; i < out.numel(); i += width) {
    double total = 0, largest = x[i];
    for (std::int64_t j = 0; j < width; ++j) largest = std::max(largest, x[i + j]);
    for (std::int64_t j = 0; j < width; ++j) total += std::exp(x[i + j] - largest);
    for (std::int64_t j = 0; j < width; ++j) y[i + j] = std::exp(x[i + j] - largest) / total;
  }
  return {out};
}

OpCase softmax_row(const std::string& name, const Shape& x) {
  OpCase row;
  row.name = name;
  row.inputs = {x};
  row.call = [](const Tensors& in) { return Tensors{softmax(in[0])}; };
  row.oracle = softmax_oracle;
  row.rtol = 2e-6;
  row.atol = 1e-7;
  row.grad_rtol = 1e-5;
  row.grad_atol = 1e-6;
  row.saved_bytes = x.numel() * 4;  // y
  row.empty_ok = true;
  row.bench = {{1024, 1024}};
  return row;
}

}  // namespace

std::vector<OpCase> softmax_cases() {
  OpCase plain = softmax_row("softmax", {2, 3, 5});
  plain.golden = "softmax";
  return {plain, softmax_row("softmax_odd_width", {4, 37}), softmax_row("softmax_1d", {8})};
}

}  // namespace duet::test
