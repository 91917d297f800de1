// Second derivatives: central differences of the first gradient, with random cotangents on both
// levels, by the inputs and by the cotangents of the first.
#include <algorithm>
#include <cmath>

#include "autograd/node.h"
#include "runtime/memory_ops.h"
#include "tests/ops/checks.h"
#include "tests/ops/harness.h"

namespace duet::test {
namespace {

constexpr std::int64_t kMaxEvaluations = 400;  // beyond, random directions stand in for elements
constexpr int kDirections = 6;
constexpr Tolerance kAgainstDifferences{1e-5, 1e-6};
constexpr Tolerance kSameInF64{1e-11, 1e-11};

// Where the first gradients are taken, and what they are weighted with.
struct Problem {
  Tensors points;   // the row's inputs, then a cotangent for each output
  Tensors weights;  // one per input
  std::size_t inputs;
};

Problem problem_of(const OpCase& row) {
  Problem p{random_inputs(row), {}, row.inputs.size()};
  for (std::size_t i = 0; i < p.inputs; ++i) {
    p.weights.push_back(random_tensor(row.inputs[i], -1, 1, 31 + i));
  }
  for (Tensor& c : random_cotangents(row, p.points)) p.points.push_back(std::move(c));
  return p;
}

Tensors as_leaves(const Tensors& points) {
  Tensors leaves;
  for (const Tensor& t : points) {
    leaves.push_back(t.detach());
    set_requires_grad(leaves.back());
  }
  return leaves;
}

// sum_i <a_i, b_i>, recorded; what is undefined counts as 0
Tensor inner(const Tensors& a, const Tensor* b) {
  Tensor total = Tensor::zeros({}, DType::f64);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined()) total = add(total, sum(mul(a[i], b[i])));
  }
  return total;
}

Tensors first_gradients(const OpCase& row, const Problem& p, const Tensors& leaves,
                        bool create_graph) {
  const auto end_of_inputs = leaves.begin() + static_cast<std::ptrdiff_t>(p.inputs);
  const Tensors inputs(leaves.begin(), end_of_inputs);
  const Tensor loss = inner(row.call(inputs), &leaves[p.inputs]);
  return grad(loss, inputs, {.create_graph = create_graph});
}

// d/d(points) of sum_j <first gradient j, weight j>
Tensors second_gradients(const OpCase& row, const Problem& p) {
  const Tensors leaves = as_leaves(p.points);
  const Tensors first = first_gradients(row, p, leaves, /*create_graph=*/true);
  Tensors second = grad(inner(first, p.weights.data()), leaves);
  for (std::size_t i = 0; i < second.size(); ++i) {
    if (!second[i].defined()) second[i] = Tensor::zeros(leaves[i].shape(), DType::f64);
  }
  return second;
}

struct Probe {
  std::size_t point;
  std::vector<double> direction;
  double value;  // the central difference along it
};

double central_difference(const OpCase& row, const Problem& p, const Probe& probe) {
  const double h = 1e-5;
  const auto at = [&](double step) {
    Tensors points = p.points;
    points[probe.point] = clone(points[probe.point]);
    double* x = points[probe.point].mutable_data<double>();
    for (std::size_t k = 0; k < probe.direction.size(); ++k) x[k] += step * probe.direction[k];
    return first_gradients(row, p, as_leaves(points), /*create_graph=*/false);
  };
  const Tensors up = at(h), down = at(-h);
  double change = 0;
  for (std::size_t j = 0; j < p.inputs; ++j) {
    if (!up[j].defined()) continue;
    const std::vector<double> a = values(up[j]), b = values(down[j]), w = values(p.weights[j]);
    for (std::size_t k = 0; k < a.size(); ++k) change += w[k] * (a[k] - b[k]);
  }
  return change / (2 * h);
}

std::vector<Probe> central_differences(const OpCase& row, const Problem& p) {
  std::int64_t elements = 0;
  for (const Tensor& t : p.points) elements += t.numel();
  const bool every_element = 2 * elements <= kMaxEvaluations;
  std::vector<Probe> probes;
  for (std::size_t i = 0; i < p.points.size(); ++i) {
    const std::int64_t size = p.points[i].numel();
    const std::int64_t n = every_element ? size : kDirections;
    for (std::int64_t k = 0; k < n; ++k) {
      Probe probe{i, std::vector<double>(static_cast<std::size_t>(size), 0), 0};
      if (every_element) {
        probe.direction[static_cast<std::size_t>(k)] = 1;
      } else {
        const auto seed = 177 + static_cast<std::uint64_t>(k);
        probe.direction = values(random_tensor(p.points[i].shape(), -1, 1, seed));
      }
      probe.value = central_difference(row, p, probe);
      probes.push_back(std::move(probe));
    }
  }
  return probes;
}

std::string point_name(const Problem& p, std::size_t i) {
  return i < p.inputs ? concat("input ", i) : concat("the cotangent of output ", i - p.inputs);
}

std::string compare_probes(const OpCase& row, const Problem& p, const std::vector<Probe>& probes,
                           const Tensors& second) {
  std::vector<std::vector<double>> g;
  for (const Tensor& t : second) g.push_back(values(t));
  for (std::size_t n = 0; n < probes.size(); ++n) {
    const Probe& probe = probes[n];
    double got = 0;
    for (std::size_t k = 0; k < probe.direction.size(); ++k) {
      got += g[probe.point][k] * probe.direction[k];
    }
    const double allowed =
        kAgainstDifferences.atol + kAgainstDifferences.rtol * std::abs(probe.value);
    if (std::abs(got - probe.value) <= allowed) continue;
    return concat(row.name, ": second gradient by ", point_name(p, probe.point), ", direction ", n,
                  ": got ", got, ", central difference of the first gradient ", probe.value,
                  " (allowed ", allowed, ")");
  }
  return "";
}

// The op behind the row that has no second derivatives, or null.
const char* op_that_lacks(const OpCase& row) {
  for (const Tensor& y : row.call(as_leaves(random_inputs(row)))) {
    if (const char* op = op_without_second_order(y)) return op;
  }
  return nullptr;
}

// It must say so by name, before any gradient is written.
std::string check_refusal(const OpCase& row, const std::string& op) {
  const Problem p = problem_of(row);
  Tensors leaves = as_leaves(p.points);
  const Tensors inputs(leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(p.inputs));
  const Tensor loss = inner(row.call(inputs), &leaves[p.inputs]);
  for (const bool accumulating : {false, true}) {
    std::string text = "nothing";
    try {
      if (accumulating) {
        backward(loss, {.create_graph = true});
      } else {
        grad(loss, leaves, {.create_graph = true});
      }
    } catch (const Error& e) {
      text = e.what();
    }
    const std::string want = op + ": second derivatives are not offered; ";
    if (text.rfind(want, 0) != 0) {
      return concat(row.name, ": create_graph without second derivatives: got ", text,
                    ", expected an Error that begins with \"", want, "\"");
    }
  }
  for (const Tensor& leaf : leaves) {
    if (grad(leaf).defined()) return concat(row.name, ": the refused walk wrote a gradient");
  }
  return "";
}

// Both operands of the same values through one tensor: the mixed derivatives add up.
OpCase with_one_tensor(const OpCase& row) {
  OpCase one = row;
  one.name = concat(row.name, " with one tensor in all places");
  one.inputs = {row.inputs[0]};
  one.call = [row](const Tensors& in) { return row.call(Tensors(row.inputs.size(), in[0])); };
  return one;
}

// Each input of two dims or more comes as a transposed view.
OpCase with_transposed_inputs(const OpCase& row) {
  OpCase turned = row;
  turned.name = concat(row.name, " on transposed inputs");
  for (Shape& s : turned.inputs) {
    if (s.ndim() >= 2) std::swap(s[s.ndim() - 1], s[s.ndim() - 2]);
  }
  turned.call = [row](Tensors in) {
    for (Tensor& t : in) {
      if (t.ndim() >= 2) t = transpose(t, -1, -2);
    }
    return row.call(in);
  };
  return turned;
}

std::string check_against_differences(const OpCase& row) {
  const Problem p = problem_of(row);
  return compare_probes(row, p, central_differences(row, p), second_gradients(row, p));
}

}  // namespace

bool offers_second_order(const OpCase& row) { return op_that_lacks(row) == nullptr; }

std::string check_second_order(const OpCase& row) {
  if (!row.differentiable) return "";
  if (const char* op = op_that_lacks(row)) return check_refusal(row, op);
  const Problem p = problem_of(row);
  const Tensors plain = first_gradients(row, p, as_leaves(p.points), false);
  const Tensors recorded = first_gradients(row, p, as_leaves(p.points), true);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    std::string fault = compare(concat(row.name, ": with create_graph: gradient of input ", i),
                                recorded[i], plain[i], kSameInF64);
    if (!fault.empty()) return fault;
  }
  std::string fault = check_against_differences(row);
  if (fault.empty() && row.strided) fault = check_against_differences(with_transposed_inputs(row));
  const bool alike =
      row.inputs.size() > 1 && std::all_of(row.inputs.begin(), row.inputs.end(),
                                           [&](const Shape& s) { return s == row.inputs[0]; });
  if (fault.empty() && alike) fault = check_against_differences(with_one_tensor(row));
  return fault;
}

std::string check_wrong_second_order_is_caught(const OpCase& row) {
  if (!row.differentiable) return "";
  if (!offers_second_order(row)) return "";
  const Problem p = problem_of(row);
  const std::vector<Probe> probes = central_differences(row, p);
  const Tensors second = second_gradients(row, p);
  for (std::size_t i = 0; i < second.size(); ++i) {
    if (second[i].numel() == 0) continue;
    const std::vector<double> g = values(second[i]);
    const auto largest = std::max_element(
        g.begin(), g.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
    const std::ptrdiff_t at = largest - g.begin();
    const auto is_caught = [&](const char* fault, auto&& spoil) {
      Tensors wrong = second;
      wrong[i] = clone(second[i]);
      spoil(wrong[i].mutable_data<double>()[at]);
      if (!compare_probes(row, p, probes, wrong).empty()) return std::string();
      return concat(row.name, ": the check does not notice ", fault, " in the second gradient by ",
                    point_name(p, i), " (largest element ", *largest, ")");
    };
    std::string fault = is_caught("0.01 too much", [](double& v) { v += 0.01; });
    // A linear op's second gradient is zero: then there is no sign to get wrong.
    if (fault.empty() && *largest != 0) {
      fault = is_caught("a flipped sign", [](double& v) { v = -v; });
    }
    if (!fault.empty()) return fault;
  }
  return "";
}

}  // namespace duet::test
