// Rows of matmul, linear and linear_gelu_tanh.
#include <cmath>

#include "tests/ops/op_case.h"

namespace duet::test {
namespace {

// y[b, i, j] = sum_k a[b, i, k] b[b, k, j], leading dimensions aligned right, size 1 repeated.
Tensors matmul_oracle(const Tensors& in) {
  const Tensor &a = in[0], &b = in[1];
  const std::int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  const int ndim = a.ndim() > b.ndim() ? a.ndim() : b.ndim();
  const auto size = [ndim](const Tensor& t, int d) {
    const int i = d - (ndim - t.ndim());
    return i < 0 ? std::int64_t{1} : t.shape()[i];
  };
  Shape shape;
  for (int d = 0; d < ndim - 2; ++d) {
    shape.push_back(size(a, d) == 1 ? size(b, d) : size(a, d));
  }
  const std::int64_t batches = shape.numel();
  shape.push_back(m);
  shape.push_back(n);
  Tensor out = Tensor::empty(shape, DType::f64);
  double* y = out.mutable_data<double>();
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    // The matrix of each operand that this batch reads.
    std::int64_t rest = batch, matrix_a = 0, matrix_b = 0, step_a = 1, step_b = 1;
    for (int d = ndim - 3; d >= 0; --d) {
      const std::int64_t i = rest % shape[d];
      rest /= shape[d];
      if (size(a, d) != 1) matrix_a += i * step_a;
      if (size(b, d) != 1) matrix_b += i * step_b;
      step_a *= size(a, d);
      step_b *= size(b, d);
    }
    const double* pa = a.data<double>() + matrix_a * m * k;
    const double* pb = b.data<double>() + matrix_b * k * n;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < k; ++l) sum += pa[i * k + l] * pb[l * n + j];
        y[(batch * m + i) * n + j] = sum;
      }
    }
  }
  return {out};
}

Tensors linear_oracle(const Tensors& in) {
  const std::int64_t width = in[1].size(1), out_width = in[1].size(0);
  const double *x = in[0].data<double>(), *w = in[1].data<double>();
  Shape shape = in[0].shape();
  shape[shape.ndim() - 1] = out_width;
  Tensor out = Tensor::empty(shape, DType::f64);
  double* y = out.mutable_data<double>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const std::int64_t row = i / out_width, column = i % out_width;
    y[i] = in.size() > 2 ? in[2].data<double>()[column] : 0;
    for (std::int64_t c = 0; c < width; ++c) y[i] += x[row * width + c] * w[column * width + c];
  }
  return {out};
}

OpCase matmul_row(const std::string& name, const Shape& a, const Shape& b) {
  OpCase row;
  row.name = name;
  row.inputs = {a, b};
  row.call = [](const Tensors& in) { return Tensors{matmul(in[0], in[1])}; };
  row.oracle = matmul_oracle;
  row.saved_bytes = (a.numel() + b.numel()) * 4;
  row.bench = {{512, 512}, {512, 512}};
  row.bench_flops = 2.0 * 512 * 512 * 512;
  row.exact_on_integers = true;
  row.empty_ok = true;
  return row;
}

OpCase linear_row(const std::string& name, const Shape& x, std::int64_t out, bool bias) {
  OpCase row;
  row.name = name;
  row.inputs = {x, {out, x.back()}};
  if (bias) row.inputs.push_back({out});
  row.call = [bias](const Tensors& in) {
    return Tensors{linear(in[0], in[1], bias ? in[2] : Tensor())};
  };
  row.oracle = linear_oracle;
  row.saved_bytes = (x.numel() + out * x.back()) * 4;  // x, weight
  row.bench = {{512, 512}, {512, 512}};
  if (bias) row.bench.push_back({512});
  row.bench_flops = 2.0 * 512 * 512 * 512;
  row.exact_on_integers = true;
  row.empty_ok = true;
  return row;
}

// x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3), of linear's x
OpCase linear_gelu_row(const std::string& name, const Shape& x, std::int64_t out, bool bias) {
  OpCase row = linear_row(name, x, out, bias);
  row.call = [bias](const Tensors& in) {
    return Tensors{linear_gelu_tanh(in[0], in[1], bias ? in[2] : Tensor())};
  };
  row.oracle = [](const Tensors& in) {
    Tensor h = linear_oracle(in)[0];
    double* y = h.mutable_data<double>();
    for (std::int64_t i = 0; i < h.numel(); ++i) {
      const double u = std::sqrt(2 / std::acos(-1.0)) * (y[i] + 0.044715 * y[i] * y[i] * y[i]);
      y[i] *= 0.5 * (1 + std::tanh(u));
    }
    return Tensors{h};
  };
  row.saved_bytes += x.numel() / x.back() * out * 4;  // and h
  row.exact_on_integers = false;
  // At h = -infinity the formula is infinity times 0: NaN as cublasLt computes it, 0 on the cpu.
  row.specials = Specials::nan;
  return row;
}

}  // namespace

std::vector<OpCase> matmul_cases() {
  std::vector<OpCase> rows{
      matmul_row("matmul", {3, 7}, {7, 5}),
      matmul_row("matmul_batched", {2, 1, 3, 7}, {4, 7, 5}),
      linear_row("linear", {2, 3, 7}, 5, false),
      linear_row("linear_bias", {2, 3, 7}, 5, true),
  };
  for (OpCase& row : rows) row.golden = row.name;
  rows.push_back(matmul_row("matmul_square", {4, 4}, {4, 4}));
  rows.back().empty_ok = false;  // dim 0 of b is the inner size
  rows.push_back(matmul_row("matmul_shared_right", {2, 3, 4, 5}, {5, 6}));
  rows.push_back(matmul_row("matmul_shared_left", {4, 5}, {2, 3, 5, 6}));
  rows.push_back(matmul_row("matmul_outer", {5, 1}, {1, 6}));
  rows.push_back(matmul_row("matmul_tiles", {35, 67}, {67, 66}));
  rows.push_back(linear_row("linear_1d", {7}, 5, true));
  rows.back().empty_ok = false;  // dim 0 of x is its width
  rows.push_back(linear_row("linear_one_output", {6, 7}, 1, true));
  rows.push_back(linear_row("linear_wide", {70, 33}, 65, true));
  // Widths of whole vectors, which one launch can write on a GPU, and others.
  rows.push_back(linear_gelu_row("linear_gelu_tanh", {2, 3, 7}, 8, true));
  rows.push_back(linear_gelu_row("linear_gelu_tanh_no_bias", {2, 3, 7}, 8, false));
  rows.push_back(linear_gelu_row("linear_gelu_tanh_odd", {2, 3, 7}, 5, true));
  rows.push_back(linear_gelu_row("linear_gelu_tanh_odd_no_bias", {5, 6}, 3, false));
  rows.push_back(linear_gelu_row("linear_gelu_tanh_1d", {7}, 8, true));
  rows.back().empty_ok = false;  // dim 0 of x is its width
  rows.push_back(linear_gelu_row("linear_gelu_tanh_wide", {70, 33}, 64, true));
  return rows;
}

}  // namespace duet::test
