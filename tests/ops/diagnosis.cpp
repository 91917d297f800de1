// Names the kind of a fault by experiment: the same row with one thing changed, until the wrong
// values are explained.
#include <algorithm>
#include <cmath>

#include "runtime/memory_ops.h"
#include "tests/ops/checks.h"
#include "tests/ops/harness.h"
#include "tests/ops/proof.h"

namespace duet::test {
namespace {

constexpr Tolerance kSame{1e-4, 1e-6};       // gradients by central differences
constexpr std::int64_t kMostElements = 512;  // of inputs; beyond, experiments take too long
constexpr const char* kWrongGradient = "wrong gradient";
constexpr const char* kMissingSum = "missing broadcast sum";
constexpr const char* kFreedMemory =
    "reads freed memory (keeps a view or pointer of a tensor that is gone; save it in Saved)";
constexpr const char* kTransposed = "transposed operand";

bool same(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && compare("", a, b, kSame).empty();
}

bool is_square(const Tensor& t) {
  return t.ndim() >= 2 && t.size(-1) == t.size(-2) && t.size(-1) > 1;
}

Tensor transposed(const Tensor& t) { return clone(t.transpose_view(-1, -2)); }

// c with got = c * want everywhere; 0 if there is none.
double factor(const Tensor& got, const Tensor& want) {
  if (!got.defined() || got.shape() != want.shape()) return 0;
  const std::vector<double> g = values(got), w = values(want);
  double dot = 0, squares = 0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    dot += g[i] * w[i];
    squares += w[i] * w[i];
  }
  if (squares == 0 || dot == 0) return 0;
  const double c = dot / squares;
  for (std::size_t i = 0; i < g.size(); ++i) {
    if (!(std::abs(g[i] - c * w[i]) <= 1e-6 + 1e-4 * std::abs(c * w[i]))) return 0;
  }
  return c;
}

std::string by_factor(const std::string& what, double c) {
  if (std::abs(c + 1) < 1e-3) return concat("wrong sign of ", what);
  if (c < 0) return concat("wrong sign and size of ", what, " (", c, " times what it should be)");
  return concat("wrong size of ", what, " (", c, " times what it should be)");
}

// The row as it is on its random inputs.
struct Experiment {
  const OpCase& row;
  Tensors inputs, cotangents;
  Result got;
  Tensors want;  // gradients

  explicit Experiment(const OpCase& r)
      : row(r),
        inputs(random_inputs(r)),
        cotangents(random_cotangents(r, inputs)),
        got(run(r, inputs, cotangents)),
        want(numeric_gradients(r, inputs, cotangents)) {}

  // Whether `wrong` is the gradient of input i after all, with one input or cotangent transposed.
  bool explained_by_transposing(std::size_t i, const Tensor& wrong) const {
    if (is_square(wrong) && same(transposed(wrong), want[i])) return true;
    for (std::size_t j = 0; j < inputs.size(); ++j) {
      if (!is_square(inputs[j])) continue;
      Tensors turned = inputs;
      turned[j] = transposed(inputs[j]);
      if (same(wrong, numeric_gradients(row, turned, cotangents)[i])) return true;
    }
    for (std::size_t j = 0; j < cotangents.size(); ++j) {
      if (!is_square(cotangents[j])) continue;
      Tensors turned = cotangents;
      turned[j] = transposed(cotangents[j]);
      if (same(wrong, numeric_gradients(row, inputs, turned)[i])) return true;
    }
    return false;
  }

  // Whether `wrong` takes one slice of grad_output along a leading dimension instead of them all.
  bool explained_by_one_slice(std::size_t i, const Tensor& wrong) const {
    const Shape out = cotangents[0].shape();
    for (int d = 0; d < out.ndim(); ++d) {
      for (const std::int64_t at : {std::int64_t{0}, out[d] - 1}) {
        if (out[d] < 2) continue;
        Tensors one = cotangents;
        one[0] = Tensor::zeros(out, DType::f64);
        Tensor slice = one[0].slice_view(d, at, at + 1);
        copy(slice, cotangents[0].slice_view(d, at, at + 1));
        if (same(wrong, numeric_gradients(row, inputs, one)[i])) return true;
      }
    }
    return false;
  }
};

std::string gradient_kind(const OpCase& row) {
  const Experiment e(row);
  for (std::size_t i = 0; i < e.inputs.size(); ++i) {
    const Tensor& got = e.got.grads[i];
    if (same(got, e.want[i])) continue;
    const std::string what = concat("the gradient of input ", i);
    if (!got.defined()) return concat("no gradient of input ", i);
    if (e.explained_by_one_slice(i, got)) return concat(kMissingSum, " in ", what);
    if (const double c = factor(got, e.want[i]); c != 0) return by_factor(what, c);
    if (e.explained_by_transposing(i, got)) return concat(kTransposed, " in ", what);
    return concat("wrong gradient of input ", i);
  }
  return kWrongGradient;
}

std::string output_kind(const OpCase& row) {
  const Tensors inputs = random_inputs(row);
  const Tensors got = forward(row, inputs), want = row.oracle(inputs);
  for (std::size_t o = 0; o < got.size(); ++o) {
    if (same(got[o], want[o])) continue;
    const std::string what = concat("output ", o);
    if (const double c = factor(got[o], want[o]); c != 0) return by_factor(what, c);
    if (is_square(got[o]) && same(transposed(got[o]), want[o]))
      return concat(what, " is transposed");
    for (std::size_t j = 0; j < inputs.size(); ++j) {
      if (!is_square(inputs[j])) continue;
      Tensors turned = inputs;
      turned[j] = transposed(inputs[j]);
      if (same(got[o], row.oracle(turned)[o])) {
        return concat(kTransposed, ": input ", j, " in the forward");
      }
    }
    return concat("wrong ", what);
  }
  return "f32 is less exact than the row states";
}

bool has_nan(const Result& result) {
  for (const Tensors* tensors : {&result.outputs, &result.grads}) {
    for (const Tensor& t : *tensors) {
      if (!t.defined()) continue;
      const std::vector<double> v = values(t);
      if (std::any_of(v.begin(), v.end(), [](double x) { return std::isnan(x); })) return true;
    }
  }
  return false;
}

// Whether the NaN in a message comes from poisoned memory: without poison the check says something
// else, or nothing.
bool is_poison(const Check& check, const OpCase& row, const std::string& message) {
  if (message.find("nan") == std::string::npos) return false;
  const PoisonScope none(allocator(test_device()), false);
  fill_free_memory(1.25);
  return check.run(row).find("nan") == std::string::npos;
}

// Two runs over memory that holds the same: what differs then does not come from the memory.
std::string memory_kind(const OpCase& row) {
  for (const DType dtype : test_dtypes()) {
    const Tensors exact = random_inputs(row);
    const Tensors inputs = on_device(exact, dtype);
    const Tensors cotangents = on_device(random_cotangents(row, exact), dtype);
    const auto run_over = [&](double value, bool poison = false) {
      const PoisonScope memory(allocator(test_device()), false);
      fill_free_memory(value);
      const PoisonScope during(allocator(test_device()), poison);
      return run(row, inputs, cotangents);
    };
    const Result first = run_over(1.25);
    if (!has_nan(first) && !has_nan(run_over(std::nan(""))) && has_nan(run_over(1.25, true))) {
      return kFreedMemory;
    }
    for (int n = 0; n < 4; ++n) {
      if (!compare_bits("", run_over(1.25), first).empty()) return "not deterministic";
    }
    if (!compare_bits("", run_over(std::nan("")), first).empty()) {
      return "reads uninitialised memory (or leaves a part of its output unwritten)";
    }
    if (!compare_bits("", run_over(1.25, true), first).empty()) return kFreedMemory;
  }
  return "not deterministic";
}

}  // namespace

std::string kind_of(const Check& check, const OpCase& row, const std::string& message) {
  std::int64_t elements = 0;
  for (const Shape& shape : row.inputs) elements += shape.numel();
  try {
    if (check.run != check_same_bits && is_poison(check, row, message)) {
      return "reads memory that is freed, or that nobody wrote, on such inputs";
    }
    // autograd refuses a gradient that has not the shape of its input.
    if (message.find(": backward returned ") != std::string::npos) {
      return concat(kMissingSum, ": a gradient has not the shape of its input");
    }
    if (message.find(": threw: ") != std::string::npos) return "an unexpected error";
    if (check.run == check_repeated_runs || check.run == check_same_bits) return memory_kind(row);
    if (check.run == check_saved_bytes) {
      if (message.find("still held") != std::string::npos) return "leak: saved tensors stay";
      const std::size_t at = message.find("saves ");
      if (at == std::string::npos) return check.kind;
      return std::stoll(message.substr(at + 6)) > row.saved_bytes
                 ? "saves too much"
                 : "saves less than the row states";
    }
    if (elements > kMostElements || test_device() != kCpu) return check.kind;
    if (check.run == check_gradients) return gradient_kind(row);
    if (check.run == check_oracle) {
      const bool of_gradient = message.find(": gradient of input") != std::string::npos;
      if (!of_gradient) return output_kind(row);
      const std::string kind = gradient_kind(row);
      return kind == kWrongGradient ? "f32 gradient is less exact than the row states" : kind;
    }
  } catch (const std::exception&) {
    // The experiment is refused: what the check itself says has to do.
  }
  return check.kind;
}

}  // namespace duet::test
