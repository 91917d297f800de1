#include <cmath>
#include <optional>

#include "runtime/memory_ops.h"
#include "tests/ops/checks.h"
#include "tests/ops/harness.h"

namespace duet::test {
namespace {

enum class Layout { transposed, stepped, offset, expanded };
constexpr Layout kLayouts[] = {Layout::transposed, Layout::stepped, Layout::offset,
                               Layout::expanded};
const char* name(Layout layout) {
  switch (layout) {
    case Layout::transposed:
      return "transposed";
    case Layout::stepped:
      return "stepped";
    case Layout::offset:
      return "offset";
    case Layout::expanded:
      return "expanded";
  }
  return "?";
}

// The values of `t` in another layout; gaps hold NaN. (Expanded: of its first part along dim 0.)
// With `any_strides` off the last dim keeps stride 1. Nothing where the rank is too small.
std::optional<Tensor> in_layout(const Tensor& t, Layout layout, bool any_strides) {
  const int last = t.ndim() - 1;
  if (t.numel() == 0 || last < (any_strides ? 0 : 1)) return std::nullopt;
  Shape shape = t.shape();
  Tensor view;
  if (layout == Layout::expanded) return t.slice_view(0, 0, 1).expand_view(t.shape());
  if (layout == Layout::transposed) {
    const int a = any_strides ? last - 1 : 0, b = any_strides ? last : 1;
    if (t.ndim() < (any_strides ? 2 : 3)) return std::nullopt;
    std::swap(shape[a], shape[b]);
    view = Tensor::empty(shape, t.dtype(), t.device()).transpose_view(a, b);
  } else {
    const int dim = any_strides ? last : 0;
    const std::int64_t n = shape[dim];
    shape[dim] = layout == Layout::stepped ? 2 * n : n + 3;
    const Tensor base = Tensor::full(shape, std::nan(""), t.dtype(), t.device());
    view = layout == Layout::stepped ? base.slice_view(dim, 0, 2 * n, 2)
                                     : base.slice_view(dim, 2, 2 + n);
  }
  copy(view, t);
  return view;
}

// Runs the row on `inputs` and on contiguous copies of them.
std::string compare_with_contiguous(const OpCase& row, const std::string& what,
                                    const Tensors& inputs, Tolerance outputs, Tolerance grads) {
  Tensors plain;
  for (const Tensor& t : inputs) plain.push_back(clone(t));
  const Tensors cotangents = on_device(random_cotangents(row, on_host(plain)), inputs[0].dtype());
  return compare(what, run(row, inputs, cotangents), run(row, plain, cotangents), outputs, grads);
}

std::string check_layout(const OpCase& row, Layout layout, DType dtype, Tolerance outputs,
                         Tolerance grads) {
  const Tensors plain = on_device(random_inputs(row), dtype);
  Tensors all = plain;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const std::optional<Tensor> changed = in_layout(plain[i], layout, row.strided);
    if (!changed) continue;
    all[i] = *changed;
    Tensors one = plain;
    one[i] = *changed;
    const std::string what = concat(row.name, ": input ", i, " ", name(layout), " (", dtype, ")");
    std::string fault = compare_with_contiguous(row, what, one, outputs, grads);
    if (!fault.empty()) return fault;
  }
  const std::string what = concat(row.name, ": all inputs ", name(layout), " (", dtype, ")");
  return compare_with_contiguous(row, what, all, outputs, grads);
}

// The row with `n` in dim 0 of the first input and of every input of the same rank and size there.
OpCase with_first_size(const OpCase& row, std::int64_t n) {
  OpCase changed = row;
  const Shape first = row.inputs[0];
  for (Shape& s : changed.inputs) {
    if (s.ndim() == first.ndim() && s[0] == first[0]) s[0] = n;
  }
  return changed;
}

}  // namespace

std::string check_strides(const OpCase& row) {
  for (const Layout layout : kLayouts) {
    std::string fault =
        check_layout(row, layout, widest_dtype(), same_outputs(row), same_grads(row));
    if (fault.empty() && widest_dtype() != DType::f32) {
      fault = check_layout(row, layout, DType::f32, {row.rtol, row.atol},
                           {row.grad_rtol, row.grad_atol});
    }
    if (!fault.empty()) return fault;
  }
  return "";
}

std::string check_small_sizes(const OpCase& row) {
  if (!row.empty_ok) return "";
  for (const std::int64_t n : {0, 1}) {
    const OpCase small = with_first_size(row, n);
    const Tensors inputs = random_inputs(small);
    const Tensors cotangents = random_cotangents(small, inputs);
    const Result in_f64 = run(small, inputs, cotangents);
    const Tensors want = row.oracle(inputs);
    const std::string what = concat(row.name, " with size ", n, " in dim 0");
    std::string fault =
        compare(what, Result{in_f64.outputs, {}}, Result{want, {}}, {1e-10, 1e-12}, {});
    if (!fault.empty()) return fault;
    const Result in_f32 =
        run(small, on_device(inputs, DType::f32), on_device(cotangents, DType::f32));
    fault = compare(what + " (f32)", in_f32, Result{want, in_f64.grads}, {row.rtol, row.atol},
                    {row.grad_rtol, row.grad_atol});
    if (!fault.empty()) return fault;
    bool nothing_out = true;
    for (const Tensor& y : in_f64.outputs) nothing_out = nothing_out && y.numel() == 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& g = test_device() == kCpu ? in_f64.grads[i] : in_f32.grads[i];
      if (!g.defined() || g.shape() != inputs[i].shape()) {
        return concat(what, ": input ", i, " ", inputs[i].shape(), " got ",
                      g.defined() ? concat("a gradient of shape ", g.shape()) : "no gradient");
      }
      for (const double v : values(g)) {
        if (!std::isfinite(v)) return concat(what, ": gradient of input ", i, " is ", v);
        if (nothing_out && v != 0) {
          return concat(what, ": gradient of input ", i, " is ", v, ", expected 0");
        }
      }
    }
  }
  return "";
}

std::string check_broadcasting(const OpCase& row) {
  if (!row.broadcasts) return "";
  const std::vector<std::vector<Shape>> variants = {
      {{1, 5}, {4, 5}}, {{4, 5}, {4, 1}}, {{4, 1}, {1, 5}},    {{1, 5}, {4, 1}}, {{}, {4, 5}},
      {{4, 5}, {}},     {{5}, {3, 4, 5}}, {{3, 1, 5}, {4, 1}}, {{1}, {1, 1}},    {{2, 0}, {1}}};
  for (const std::vector<Shape>& shapes : variants) {
    OpCase variant = row;
    variant.inputs = shapes;
    variant.name = concat(row.name, " on ", shapes[0], " and ", shapes[1]);
    std::string fault = check_oracle(variant);
    const bool in_f64 = test_device() == kCpu;  // the oracle check has compared the gradients
    if (fault.empty() && in_f64) fault = check_gradients(variant);
    if (fault.empty() && in_f64) fault = check_second_order(variant);
    if (!fault.empty()) return fault;
  }
  return "";
}

}  // namespace duet::test
