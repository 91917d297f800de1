// Rows of rms_norm and layer_norm, also of a residual sum.
#include <cmath>

#include "tests/ops/op_case.h"

namespace duet::test {
namespace {

constexpr double kEps = 1e-5;

Tensors rms_norm_oracle(const Tensors& in) {
  const std::int64_t width = in[1].size(0);
  const double *x = in[0].data<double>(), *w = in[1].data<double>();
  Tensor out = Tensor::empty_like(in[0]);
  double* y = out.mutable_data<double>();
  for (std::int64_t i = 0; i < out.numel(); i += width) {
    double squares = 0;
    for (std::int64_t j = 0; j < width; ++j) squares += x[i + j] * x[i + j];
    const double rms = std::sqrt(squares / static_cast<double>(width) + kEps);
    for (std::int64_t j = 0; j < width; ++j) y[i + j] = x[i + j] / rms * w[j];
  }
  return {out};
}

Tensors layer_norm_oracle(const Tensors& in) {
  const std::int64_t width = in[1].size(0);
  const double *x = in[0].data<double>(), *w = in[1].data<double>();
  Tensor out = Tensor::empty_like(in[0]);
  double* y = out.mutable_data<double>();
  for (std::int64_t i = 0; i < out.numel(); i += width) {
    double mean = 0, variance = 0;
    for (std::int64_t j = 0; j < width; ++j) mean += x[i + j] / static_cast<double>(width);
    for (std::int64_t j = 0; j < width; ++j) {
      variance += (x[i + j] - mean) * (x[i + j] - mean) / static_cast<double>(width);
    }
    for (std::int64_t j = 0; j < width; ++j) {
      y[i + j] = (x[i + j] - mean) / std::sqrt(variance + kEps) * w[j];
      if (in.size() > 2) y[i + j] += in[2].data<double>()[j];
    }
  }
  return {out};
}

OpCase rms_row(const std::string& name, const Shape& x) {
  OpCase row;
  row.name = name;
  row.inputs = {x, {x.back()}};
  row.call = [](const Tensors& in) { return Tensors{rms_norm(in[0], in[1], kEps)}; };
  row.oracle = rms_norm_oracle;
  row.saved_bytes = (x.numel() + x.back()) * 4;  // x, weight
  row.bench = {{1024, 1024}, {1024}};
  row.empty_ok = true;
  return row;
}

OpCase layer_row(const std::string& name, const Shape& x, bool bias) {
  OpCase row;
  row.name = name;
  row.inputs = {x, {x.back()}};
  if (bias) row.inputs.push_back({x.back()});
  row.call = [bias](const Tensors& in) {
    return Tensors{layer_norm(in[0], in[1], bias ? in[2] : Tensor(), kEps)};
  };
  row.oracle = layer_norm_oracle;
  row.saved_bytes = (x.numel() + x.back()) * 4;  // x, weight
  row.bench = {{1024, 1024}, {1024}};
  if (bias) row.bench.push_back({1024});
  row.empty_ok = true;
  return row;
}

// From the row of a norm, that of the op with the residual sum in front: x and delta for x.
OpCase add_row(const std::string& name, const OpCase& norm) {
  OpCase row = norm;
  row.name = name;
  row.inputs.insert(row.inputs.begin(), norm.inputs[0]);
  row.bench.insert(row.bench.begin(), norm.bench[0]);
  const bool layer = norm.name != "rms_norm";
  row.call = [layer](const Tensors& in) {
    const auto [sum, y] =
        layer ? add_layer_norm(in[0], in[1], in[2], in.size() > 3 ? in[3] : Tensor(), kEps)
              : add_rms_norm(in[0], in[1], in[2], kEps);
    return Tensors{sum, y};
  };
  row.oracle = [oracle = norm.oracle](const Tensors& in) {
    Tensor sum = Tensor::empty_like(in[0]);
    const double *x = in[0].data<double>(), *delta = in[1].data<double>();
    for (std::int64_t i = 0; i < sum.numel(); ++i) sum.mutable_data<double>()[i] = x[i] + delta[i];
    Tensors rest(in.begin() + 1, in.end());
    rest[0] = sum;
    return Tensors{sum, oracle(rest)[0]};
  };
  return row;  // saved: the sum and the weight
}

}  // namespace

std::vector<OpCase> norm_cases() {
  std::vector<OpCase> rows{
      rms_row("rms_norm", {2, 3, 8}),
      rms_row("rms_norm_odd_width", {3, 37}),
      rms_row("rms_norm_many_rows", {70, 5}),
      layer_row("layer_norm", {2, 3, 8}, true),
      layer_row("layer_norm_no_bias", {2, 3, 8}, false),
      layer_row("layer_norm_odd_width", {3, 37}, true),
      layer_row("layer_norm_many_rows", {70, 5}, true),
      add_row("add_rms_norm", rms_row("rms_norm", {2, 3, 8})),
      add_row("add_rms_norm_odd_width", rms_row("rms_norm", {3, 37})),
      add_row("add_rms_norm_many_rows", rms_row("rms_norm", {70, 5})),
      add_row("add_layer_norm", layer_row("layer_norm", {2, 3, 8}, true)),
      add_row("add_layer_norm_no_bias", layer_row("layer_norm", {2, 3, 8}, false)),
      add_row("add_layer_norm_odd_width", layer_row("layer_norm", {3, 37}, true)),
      add_row("add_layer_norm_many_rows", layer_row("layer_norm", {70, 5}, true)),
  };
  for (OpCase& row : rows) {
    if (row.inputs[0] == Shape{2, 3, 8}) row.golden = row.name;
  }
  return rows;
}

}  // namespace duet::test
