// Rows of diff_combine: one lambda, and one per token and head.
#include "tests/ops/op_cases.h"
#include "tests/ops/oracle.h"

namespace duet::test {
namespace {

OpCase diff_row(const std::string& name, const Shape& a, const Shape& lambda) {
  OpCase row;
  row.name = name;
  row.inputs = {a, a, lambda};
  row.call = [](const Tensors& in) { return Tensors{diff_combine(in[0], in[1], in[2])}; };
  row.oracle = [](const Tensors& in) {
    const Values a1 = elements(in[0]), a2 = elements(in[1]), l = elements(in[2]);
    Values y(a1.size());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t head = i / static_cast<std::size_t>(in[0].size(-1));
      y[i] = a1[i] - l[in[2].ndim() == 0 ? 0 : head] * a2[i];
    }
    return Tensors{tensor_of(in[0].shape(), y)};
  };
  row.rtol = row.atol = 1e-6;
  row.grad_rtol = row.grad_atol = 1e-5;
  row.saved_bytes = (a.numel() + lambda.numel()) * 4;
  row.exact_on_integers = true;
  row.bench = {{1, 512, 8, 64}, {1, 512, 8, 64}, {}};
  row.empty_ok = lambda.ndim() == 0;
  return row;
}

}  // namespace

std::vector<OpCase> diff_combine_cases() {
  std::vector<OpCase> rows{
      diff_row("diff_combine", {2, 5, 3, 8}, {}),
      diff_row("diff_combine_heads", {2, 5, 3, 8}, {2, 5, 3}),
      diff_row("diff_combine_odd", {1, 3, 2, 21}, {}),
      diff_row("diff_combine_odd_heads", {1, 3, 2, 21}, {1, 3, 2}),
  };
  for (std::size_t i = 0; i < 2; ++i) rows[i].golden = rows[i].name;
  return rows;
}

}  // namespace duet::test
