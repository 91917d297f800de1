// Rows of ops/reduce: sum over all or some dims, mean.
#include "tests/ops/op_cases.h"
#include "tests/ops/oracle.h"

namespace duet::test {
namespace {

// Sums over the dims marked in `reduced`, and scales by 1 / count if it is a mean.
Tensors reduce_oracle(const Tensor& x, const std::vector<bool>& reduced, bool keepdim, bool mean) {
  Shape with_ones = x.shape(), shape;
  for (int d = 0; d < x.ndim(); ++d) {
    const bool gone = reduced[static_cast<std::size_t>(d)];
    if (gone) with_ones[d] = 1;
    if (!gone || keepdim) shape.push_back(with_ones[d]);
  }
  Values y(static_cast<std::size_t>(shape.numel()), 0.0);
  const Values values = elements(x);
  for (std::size_t i = 0; i < values.size(); ++i) {
    y[position(with_ones, index_of(x.shape(), static_cast<std::int64_t>(i)))] += values[i];
  }
  if (mean) y[0] /= static_cast<double>(x.numel());
  return {tensor_of(shape, y)};
}

OpCase sum_dims(const std::string& name, const Shape& shape, const std::vector<int>& dims,
                bool keepdim) {
  OpCase row;
  row.name = name;
  row.inputs = {shape};
  row.call = [=](const Tensors& in) { return Tensors{sum(in[0], dims, keepdim)}; };
  row.oracle = [=](const Tensors& in) {
    std::vector<bool> reduced(static_cast<std::size_t>(in[0].ndim()), false);
    for (const int d : dims) reduced[static_cast<std::size_t>(d < 0 ? d + in[0].ndim() : d)] = true;
    return reduce_oracle(in[0], reduced, keepdim, false);
  };
  row.rtol = 1.2e-7;  // added in double, rounded once
  row.atol = 1e-7;
  row.grad_rtol = row.grad_atol = 0;
  row.saved_bytes = 0;
  row.bench = {{1024, 1024}};
  row.exact_on_integers = true;
  row.empty_ok = true;
  return row;
}

OpCase sum_all(const std::string& name, const Shape& shape) {
  OpCase row = sum_dims(name, shape, {}, false);
  row.call = [](const Tensors& in) { return Tensors{sum(in[0])}; };
  row.oracle = [](const Tensors& in) {
    return reduce_oracle(in[0], std::vector<bool>(8, true), false, false);
  };
  row.empty_ok = shape.ndim() > 0;
  return row;
}

OpCase mean_all(const std::string& name, const Shape& shape) {
  OpCase row = sum_all(name, shape);
  row.call = [](const Tensors& in) { return Tensors{mean(in[0])}; };
  row.oracle = [](const Tensors& in) {
    return reduce_oracle(in[0], std::vector<bool>(8, true), false, true);
  };
  row.rtol = row.grad_rtol = 4e-7;
  row.exact_on_integers = false;
  row.empty_ok = false;
  return row;
}

}  // namespace

std::vector<OpCase> reduce_cases() {
  std::vector<OpCase> rows{
      sum_all("sum", {3, 4}),
      sum_all("sum_0d", {}),
      sum_all("sum_3d", {2, 5, 7}),
      sum_dims("sum_last", {3, 11}, {-1}, false),
      sum_dims("sum_first", {6, 5}, {0}, false),
      sum_dims("sum_first_keepdim", {6, 5}, {0}, true),
      sum_dims("sum_middle", {3, 4, 5}, {1}, true),
      sum_dims("sum_dims", {3, 4, 5}, {0, 2}, false),
      sum_dims("sum_none", {3, 4}, {}, false),
      mean_all("mean", {3, 4}),
      mean_all("mean_3d", {2, 3, 17}),
  };
  for (OpCase& row : rows) {
    for (const char* name : {"sum", "sum_dims", "mean"}) {
      if (row.name == name) row.golden = name;
    }
  }
  return rows;
}

}  // namespace duet::test
