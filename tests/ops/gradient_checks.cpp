#include <algorithm>
#include <array>
#include <cmath>

#include "autograd/node.h"
#include "runtime/memory_ops.h"
#include "tests/ops/checks.h"
#include "tests/ops/harness.h"

namespace duet::test {
namespace {

constexpr std::int64_t kMaxEvaluations = 4096;  // beyond, random directions stand in for elements
constexpr int kDirections = 8;
constexpr Tolerance kGradcheck{1e-4, 1e-6};  // PyTorch's are 1e-3, 1e-5

// The loss moved by `value` when input `input` moved along `direction`: one element, or all.
struct Probe {
  std::size_t input;
  std::int64_t element;  // -1: along `direction`
  std::vector<double> direction;
  double value;
};

// (L(x + h d) - L(x - h d)) / 2h with L = sum <outputs, cotangents>; the difference is taken per
// output element, before the sum, where it loses least.
double central_difference(const OpCase& row, Tensors inputs, const Tensors& cotangents,
                          const Probe& probe) {
  const Tensor base = inputs[probe.input];
  const double* x = base.data<double>();
  double largest = 1;
  for (std::int64_t i = 0; i < base.numel(); ++i) {
    if (probe.element < 0 || probe.element == i) largest = std::max(largest, std::abs(x[i]));
  }
  const double h = 1e-6 * largest;
  const auto at = [&](double step) {
    Tensor moved = clone(base);
    double* p = moved.mutable_data<double>();
    for (std::int64_t i = 0; i < base.numel(); ++i) {
      if (probe.element < 0) p[i] += step * probe.direction[static_cast<std::size_t>(i)];
      if (probe.element == i) p[i] += step;
    }
    inputs[probe.input] = moved;
    return forward(row, inputs);
  };
  const Tensors up = at(h), down = at(-h);
  double change = 0;
  for (std::size_t o = 0; o < up.size(); ++o) {
    const std::vector<double> a = values(up[o]), b = values(down[o]), c = values(cotangents[o]);
    for (std::size_t k = 0; k < a.size(); ++k) change += c[k] * (a[k] - b[k]);
  }
  return change / (2 * h);
}

std::vector<Probe> central_differences(const OpCase& row, const Tensors& inputs,
                                       const Tensors& cotangents,
                                       std::int64_t max_evaluations = kMaxEvaluations) {
  std::int64_t elements = 0;
  for (const Tensor& t : inputs) elements += t.numel();
  const bool every_element = 2 * elements <= max_evaluations;
  std::vector<Probe> probes;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::int64_t n = every_element ? inputs[i].numel() : kDirections;
    for (std::int64_t k = 0; k < n; ++k) {
      Probe probe{i, every_element ? k : -1, {}, 0};
      if (!every_element) {
        probe.direction =
            values(random_tensor(inputs[i].shape(), -1, 1, 77 + static_cast<std::uint64_t>(k)));
      }
      probe.value = central_difference(row, inputs, cotangents, probe);
      probes.push_back(std::move(probe));
    }
  }
  return probes;
}

// The analytic gradients against the probes.
std::string compare_probes(const OpCase& row, const std::vector<Probe>& probes,
                           const Tensors& grads) {
  std::vector<std::vector<double>> g;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) return concat(row.name, ": input ", i, " got no gradient");
    if (grads[i].shape() != row.inputs[i]) {
      return concat(row.name, ": gradient of input ", i, " has shape ", grads[i].shape(),
                    ", expected ", row.inputs[i]);
    }
    g.push_back(values(grads[i]));
  }
  for (const Probe& probe : probes) {
    double got = 0;
    if (probe.element >= 0) {
      got = g[probe.input][static_cast<std::size_t>(probe.element)];
    } else {
      for (std::size_t k = 0; k < probe.direction.size(); ++k) {
        got += g[probe.input][k] * probe.direction[k];
      }
    }
    const double allowed = kGradcheck.atol + kGradcheck.rtol * std::abs(probe.value);
    if (std::abs(got - probe.value) <= allowed) continue;
    return concat(row.name, ": gradient of input ", probe.input, " ", row.inputs[probe.input],
                  probe.element >= 0 ? concat(", element ", probe.element)
                                     : std::string(", along a random direction"),
                  ": got ", got, ", central difference ", probe.value, " (allowed ", allowed, ")");
  }
  return "";
}

// A tensor with the values of `t` in transposed or gapped storage.
Tensor with_gaps(const Tensor& t) {
  if (t.ndim() == 0) return t;
  Shape wide = t.shape();
  wide[t.ndim() - 1] *= 3;
  Tensor base = Tensor::full(wide, std::nan(""), t.dtype(), t.device());
  Tensor view = base.slice_view(-1, 0, wide.back(), 3);
  copy(view, t);
  return view;
}

Tensor transposed_storage(const Tensor& t) {
  if (t.ndim() < 2) return t;
  Tensor view = Tensor::empty_like(t.transpose_view(-1, -2)).transpose_view(-1, -2);
  copy(view, t);
  return view;
}

}  // namespace

Tensors numeric_gradients(const OpCase& row, const Tensors& inputs, const Tensors& cotangents) {
  Tensors grads;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    grads.push_back(Tensor::empty(inputs[i].shape(), DType::f64));
    for (std::int64_t k = 0; k < inputs[i].numel(); ++k) {
      grads[i].mutable_data<double>()[k] =
          central_difference(row, inputs, cotangents, {i, k, {}, 0});
    }
  }
  return grads;
}

std::string check_gradients(const OpCase& row) {
  if (!row.differentiable) return "";
  const Tensors inputs = random_inputs(row);
  const Tensors cotangents = random_cotangents(row, inputs);
  const Result result = run(row, inputs, cotangents);
  return compare_probes(row, central_differences(row, inputs, cotangents), result.grads);
}

std::string check_wrong_gradients_are_caught(const OpCase& row) {
  if (!row.differentiable) return "";
  const Tensors inputs = random_inputs(row);
  const Tensors cotangents = random_cotangents(row, inputs);
  const std::vector<Probe> probes = central_differences(row, inputs, cotangents);
  const Tensors grads = run(row, inputs, cotangents).grads;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) return concat(row.name, ": input ", i, " got no gradient");
    if (grads[i].numel() == 0) continue;
    const std::vector<double> g = values(grads[i]);
    const auto largest = std::max_element(
        g.begin(), g.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
    const std::ptrdiff_t at = largest - g.begin();
    const auto is_caught = [&](const char* fault, auto&& spoil) {
      Tensors wrong = grads;
      wrong[i] = convert(grads[i], DType::f64);
      spoil(wrong[i].mutable_data<double>(), wrong[i].numel());
      if (!compare_probes(row, probes, wrong).empty()) return std::string();
      return concat(row.name, ": gradcheck does not notice ", fault, " in the gradient of input ",
                    i, " (largest element ", *largest, "); choose inputs with larger gradients");
    };
    std::string fault = is_caught("a flipped sign", [&](double* p, auto) { p[at] = -p[at]; });
    if (!fault.empty()) return fault;
    fault = is_caught("a missing element", [&](double* p, auto) { p[at] = 0; });
    if (!fault.empty()) return fault;
    fault = is_caught("a factor of 1.01", [](double* p, std::int64_t n) {
      for (std::int64_t k = 0; k < n; ++k) p[k] *= 1.01;
    });
    if (!fault.empty()) return fault;
  }
  return "";
}

std::string check_same_tensor_twice(const OpCase& row) {
  if (!row.differentiable || row.inputs.size() < 2) return "";
  const bool all_equal = std::all_of(row.inputs.begin(), row.inputs.end(),
                                     [&](const Shape& s) { return s == row.inputs[0]; });
  const Tensor x = on_device({random_tensor(row.inputs[0], row.low, row.high, 5)})[0];
  const bool swapped = !all_equal && row.inputs.size() == 2 && x.ndim() >= 2 &&
                       x.transpose_view(-1, -2).shape() == row.inputs[1];
  if (!all_equal && !swapped) return "";

  Tensors inputs;
  for (std::size_t i = 0; i < row.inputs.size(); ++i) {
    inputs.push_back(swapped && i == 1 ? clone(x.transpose_view(-1, -2)) : x);
  }
  const Tensors cotangents = on_device(random_cotangents(row, on_host(inputs)));
  const Result apart = run(row, inputs, cotangents);
  Tensor want = clone(apart.grads[0]);
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    accumulate(want, swapped ? apart.grads[i].transpose_view(-1, -2) : apart.grads[i]);
  }
  Tensor leaf = x.detach();
  set_requires_grad(leaf);
  Tensors same(row.inputs.size(), leaf);
  if (swapped) same[1] = transpose(leaf, -1, -2);
  const Tensors outputs = row.call(same);
  backward(weighted_sum(outputs, cotangents));
  const std::string what = concat(row.name, ": one tensor in all places");
  return compare(what, Result{outputs, {grad(leaf)}}, Result{apart.outputs, {want}},
                 same_outputs(row), same_grads(row));
}

std::string check_outputs_used_twice(const OpCase& row) {
  if (!row.differentiable) return "";
  const Tensors exact = random_inputs(row), inputs = on_device(exact);
  const Tensors first = on_device(random_cotangents(row, exact, 11));
  const Tensors second = on_device(random_cotangents(row, exact, 12));
  Tensors total;
  for (std::size_t i = 0; i < first.size(); ++i) {
    total.push_back(clone(first[i]));
    accumulate(total[i], second[i]);
  }
  OpCase twice = row;
  twice.call = [&row](const Tensors& in) {
    Tensors outputs = row.call(in);
    const std::size_t n = outputs.size();
    for (std::size_t i = 0; i < n; ++i) outputs.push_back(outputs[i]);
    return outputs;
  };
  Tensors both = first;
  both.insert(both.end(), second.begin(), second.end());
  Result got = run(twice, inputs, both);
  got.outputs.resize(first.size());
  return compare(row.name + ": outputs used twice", got, run(row, inputs, total), same_outputs(row),
                 same_grads(row));
}

std::string check_strided_cotangents(const OpCase& row) {
  if (!row.differentiable) return "";
  const Tensors exact = random_inputs(row), inputs = on_device(exact);
  const Tensors plain = on_device(random_cotangents(row, exact));
  const Result want = run(row, inputs, plain);
  Tensors gaps, transposed, expanded, filled;
  for (const Tensor& c : plain) {
    gaps.push_back(with_gaps(c));
    transposed.push_back(transposed_storage(c));
    expanded.push_back(Tensor::full({}, 0.75, c.dtype(), c.device()).expand_view(c.shape()));
    filled.push_back(Tensor::full(c.shape(), 0.75, c.dtype(), c.device()));
  }
  const auto check = [&](const char* kind, const Tensors& cotangents, const Result& expected) {
    return compare(concat(row.name, ": ", kind, " grad_output"), run(row, inputs, cotangents),
                   expected, same_outputs(row), same_grads(row));
  };
  std::string fault = check("gapped", gaps, want);
  if (fault.empty()) fault = check("transposed", transposed, want);
  if (fault.empty()) fault = check("expanded", expanded, run(row, inputs, filled));
  return fault;
}

std::string check_single_gradients(const OpCase& row) {
  if (!row.differentiable || row.inputs.size() < 2) return "";
  const Tensors exact = random_inputs(row), inputs = on_device(exact);
  const Tensors cotangents = on_device(random_cotangents(row, exact));
  const Result all = run(row, inputs, cotangents);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors some = inputs;
    set_requires_grad(some[i]);
    const Tensors outputs = row.call(some);
    backward(weighted_sum(outputs, cotangents));
    std::string fault =
        compare(concat(row.name, ": only input ", i, " requires grad: its gradient"), grad(some[i]),
                all.grads[i], same_grads(row));
    if (!fault.empty()) return fault;
  }
  return "";
}

std::string check_accumulation(const OpCase& row) {
  if (!row.differentiable) return "";
  const Tensors exact = random_inputs(row), inputs = on_device(exact);
  const Tensors cotangents = on_device(random_cotangents(row, exact));
  const Result once = run(row, inputs, cotangents);
  Tensors leaves;
  for (const Tensor& t : inputs) {
    leaves.push_back(t.detach());
    set_requires_grad(leaves.back());
    set_grad(leaves.back(), Tensor::full(t.shape(), 0.5, t.dtype(), t.device()));
  }
  backward(weighted_sum(row.call(leaves), cotangents));
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    Tensor want = clone(once.grads[i]);
    accumulate(want, Tensor::full(want.shape(), 0.5, want.dtype(), want.device()));
    std::string fault = compare(concat(row.name, ": gradient of input ", i, ", added to 0.5"),
                                grad(leaves[i]), want, same_grads(row));
    if (!fault.empty()) return fault;
  }
  return "";
}

std::string check_calls_apart(const OpCase& row) {
  if (!row.differentiable) return "";
  constexpr std::size_t kCalls = 2;
  std::array<Tensors, kCalls> leaves;
  Tensors outputs, cotangents, want;
  for (std::size_t n = 0; n < kCalls; ++n) {
    const Tensors exact = random_inputs(row, 41 + n), inputs = on_device(exact);
    const Tensors exact_own = random_cotangents(row, exact, 43 + n), own = on_device(exact_own);
    cotangents.insert(cotangents.end(), own.begin(), own.end());
    for (const Tensor& t : inputs) {
      leaves[n].push_back(t.detach());
      set_requires_grad(leaves[n].back());
    }
    const Tensors alone = run(row, inputs, own).grads;
    want.insert(want.end(), alone.begin(), alone.end());
    // Right alone as well: what the first call of all left behind is no longer that of this one.
    // (In f32 within ten times the row's bounds, which are for other inputs.)
    const Tolerance rough{10 * row.grad_rtol, 10 * row.grad_atol};
    std::string fault =
        test_device() == kCpu
            ? compare_probes(row, central_differences(row, exact, exact_own, /*max_evaluations=*/0),
                             alone)
            : compare(concat(row.name, " beside f64 on the cpu"), Result{{}, alone},
                      Result{{}, run(row, exact, exact_own).grads}, {}, rough);
    if (!fault.empty()) return concat(fault, ", on other inputs than in the first calls");
  }
  for (const Tensors& in : leaves) {
    for (Tensor& y : row.call(in)) outputs.push_back(std::move(y));
  }
  backward(weighted_sum(outputs, cotangents));
  for (std::size_t n = 0; n < kCalls; ++n) {
    for (std::size_t i = 0; i < leaves[n].size(); ++i) {
      std::string fault = compare(
          concat(row.name, ": two calls, then one backward: call ", n, ": gradient of input ", i),
          grad(leaves[n][i]), want[n * leaves[n].size() + i], same_grads(row));
      if (!fault.empty()) return fault;
    }
  }
  return "";
}

}  // namespace duet::test
