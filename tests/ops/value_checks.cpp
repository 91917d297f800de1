#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "autograd/node.h"
#include "autograd/saved_tensor.h"
#include "runtime/safetensors.h"
#include "tests/ops/checks.h"
#include "tests/ops/harness.h"

namespace duet::test {
namespace {

constexpr Tolerance kF64Oracle{1e-10, 1e-12};
constexpr Tolerance kGolden{1e-10, 1e-10};
constexpr double kLarge = 100;  // exp(100) is beyond f32
constexpr double kMost = 1e15;  // results beyond grow by themselves; f32 may not hold their squares
constexpr double kRough = 0.1;
constexpr double kRounding = 1e-6;  // of products of two inputs in f32, where a gradient is 0

constexpr const char* kGoldenFile = DUET_SOURCE_DIR "/tests/golden/ops.safetensors";

const SafetensorsFile& golden_file() {
  static const SafetensorsFile file = SafetensorsFile::open(kGoldenFile);
  return file;
}

// NAME.in0, NAME.in1, ... as many as there are.
Tensors golden_tensors(const std::string& entry, const char* kind) {
  Tensors found;
  while (true) {
    const std::string name = concat(entry, '.', kind, found.size());
    if (golden_file().find(name) == nullptr) return found;
    found.push_back(golden_file().load(name));
  }
}

// The largest |element|; NaN if one is NaN.
double largest(const Tensors& tensors) {
  double most = 0;
  for (const Tensor& t : tensors) {
    if (!t.defined()) continue;
    for (const double v : values(t)) {
      if (std::isnan(v)) return v;
      most = std::max(most, std::abs(v));
    }
  }
  return most;
}

// The row's inputs moved out to `bound`, as values that float holds exactly. The ends of the range
// are among them: where a result overflows is at one or the other.
Tensors large_inputs(const OpCase& row, double bound) {
  const double factor = bound / std::max(std::abs(row.low), std::abs(row.high));
  Tensors inputs = random_inputs(row, 51);
  for (Tensor& t : inputs) {
    double* x = t.mutable_data<double>();
    for (std::int64_t i = 0; i < t.numel(); ++i) x[i] *= factor;
    if (t.numel() > 0) {
      *std::min_element(x, x + t.numel()) = row.low * factor;
      *std::max_element(x, x + t.numel()) = row.high * factor;
    }
  }
  return convert(convert(inputs, DType::f32), DType::f64);
}

// Beside the largest element: rounding is not in question.
std::string compare_roughly(const std::string& what, const Tensors& got, const Tensors& want,
                            double atol) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    std::string fault =
        compare(concat(what, i), got[i], want[i], {kRough, atol + kRough * largest({want[i]})});
    if (!fault.empty()) return fault;
  }
  return "";
}

}  // namespace

// Piece by piece in falling sizes, each until the allocator has to grow.
void fill_free_memory(double value) {
  Tensors taken;
  for (std::int64_t bytes = 1 << 20; bytes >= 512; bytes /= 2) {
    const std::uint64_t before = allocator(test_device()).stats().raw_allocations;
    while (allocator(test_device()).stats().raw_allocations == before) {
      taken.push_back(Tensor::full({bytes / 4}, value, DType::f32, test_device()));
    }
  }
}

bool golden_file_is_there() { return std::ifstream(kGoldenFile).is_open(); }

std::string check_oracle(const OpCase& row) {
  const Tensors inputs = random_inputs(row);
  const Tensors cotangents = random_cotangents(row, inputs);
  const Tensors want = row.oracle(inputs);
  const Result in_f64 = run(row, inputs, cotangents);
  std::string fault = compare(row.name + " in f64, oracle", Result{in_f64.outputs, {}},
                              Result{want, {}}, kF64Oracle, {});
  if (!fault.empty()) return fault;
  const Result in_f32 = run(row, on_device(inputs, DType::f32), on_device(cotangents, DType::f32));
  for (const Tensor& y : in_f32.outputs) {
    if (y.dtype() != DType::f32) return concat(row.name, ": f32 inputs give ", y.dtype());
  }
  return compare(row.name + " in f32", in_f32, Result{want, in_f64.grads}, {row.rtol, row.atol},
                 {row.grad_rtol, row.grad_atol});
}

std::string check_integers(const OpCase& row) {
  if (!row.exact_on_integers) return "";
  Tensors inputs;
  for (const Shape& shape : row.inputs) {
    inputs.push_back(random_integers(shape, 21 + inputs.size()));
  }
  const Tensors cotangents = integer_cotangents(row, inputs);
  const Result in_f64 = run(row, inputs, cotangents);
  const Result in_f32 = run(row, on_device(inputs, DType::f32), on_device(cotangents, DType::f32));
  const Result want{row.oracle(inputs), in_f64.grads};
  std::string fault = compare(row.name + " on integers, f64", in_f64, want, {}, {});
  if (fault.empty()) fault = compare(row.name + " on integers, f32", in_f32, want, {}, {});
  return fault;
}

std::string check_same_bits(const OpCase& row) {
  for (const DType dtype : test_dtypes()) {
    const Tensors exact = random_inputs(row);
    const Tensors inputs = on_device(exact, dtype);
    const Tensors cotangents = on_device(random_cotangents(row, exact), dtype);
    allocator(test_device())
        .empty_cache();  // each filling lets the cache grow: not from row to row
    const auto run_in = [&](bool poison) {
      const PoisonScope memory(allocator(test_device()), poison);
      if (!poison) fill_free_memory(1.25);
      return run(row, inputs, cotangents);
    };
    const Result first = run_in(false), second = run_in(true);
    std::string fault = compare_bits(
        concat(row.name, ", second run, in memory full of NaN (", dtype, ")"), second, first);
    if (!fault.empty()) return fault;
  }
  return "";
}

std::string check_repeated_runs(const OpCase& row) {
  for (const DType dtype : test_dtypes()) {
    const Tensors exact = random_inputs(row);
    const Tensors inputs = on_device(exact, dtype);
    const Tensors cotangents = on_device(random_cotangents(row, exact), dtype);
    const Result first = run(row, inputs, cotangents);
    for (int n = 2; n <= 5; ++n) {
      std::string fault =
          compare_bits(concat(row.name, ", run ", n, " against run 1 (", dtype, ")"),
                       run(row, inputs, cotangents), first);
      if (!fault.empty()) return fault;
    }
  }
  return "";
}

std::string check_specials(const OpCase& row) {
  if (row.specials == Specials::none) return "";
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < row.inputs.size(); ++i) {
    for (const double special : {std::nan(""), kInfinity, -kInfinity}) {
      Tensors inputs = random_inputs(row);
      if (inputs[i].numel() == 0) continue;
      if (row.specials == Specials::nan && !std::isnan(special)) continue;
      inputs[i].mutable_data<double>()[inputs[i].numel() / 2] = special;
      const Tensors want = row.oracle(inputs);
      const std::string what = concat(row.name, " with ", special, " in input ", i);
      std::string fault = compare(what + ", f64", Result{forward(row, inputs), {}},
                                  Result{want, {}}, kF64Oracle, {});
      if (fault.empty()) {
        fault = compare(what + ", f32", Result{forward(row, on_device(inputs, DType::f32)), {}},
                        Result{want, {}}, {row.rtol, row.atol}, {});
      }
      if (!fault.empty()) return fault;
    }
  }
  return "";
}

std::string check_large_inputs(const OpCase& row) {
  if (row.large < kLarge && row.large_why.empty()) {
    return concat(row.name, ": the row lowers large to ", row.large,
                  " and does not say why in large_why");
  }
  const double range = std::max(std::abs(row.low), std::abs(row.high));
  for (double bound = row.large; bound > range; bound /= 2) {
    const Tensors inputs = large_inputs(row, bound), want = row.oracle(inputs);
    if (!(largest(want) < kMost)) continue;  // it grows, or is not defined so far out
    const Tensors cotangents = random_cotangents(row, inputs);
    const Result in_f64 = run(row, inputs, cotangents);
    const std::string what = concat(row.name, " on inputs up to ", bound);
    std::string fault = compare_roughly(what + ", f64: output ", in_f64.outputs, want, row.atol);
    if (!fault.empty()) return fault;
    const double steepest = largest(in_f64.grads);
    if (!std::isfinite(steepest)) return concat(what, ", f64: a gradient is ", steepest);
    if (steepest >= kMost) continue;
    const Result in_f32 =
        run(row, on_device(inputs, DType::f32), on_device(cotangents, DType::f32));
    fault = compare_roughly(what + ", f32: output ", in_f32.outputs, want, row.atol);
    if (!fault.empty()) return fault;
    return compare_roughly(what + ", f32: gradient of input ", in_f32.grads, in_f64.grads,
                           row.grad_atol + kRounding * bound * bound);
  }
  return "";
}

std::string check_leaks(const OpCase& row) {
  const Tensors exact = random_inputs(row);
  const Tensors inputs = on_device(exact, DType::f32);
  const Tensors cotangents = on_device(random_cotangents(row, exact), DType::f32);
  std::size_t before = 0;
  for (int n = 0; n < 3; ++n) {
    run(row, inputs, cotangents);
    const std::size_t after = allocator(test_device()).stats().allocated;
    // The first run may make what stays for all others: tables, packed constants.
    if (n > 0 && after != before) {
      return concat(row.name, ": a forward and backward leave ",
                    static_cast<std::int64_t>(after) - static_cast<std::int64_t>(before),
                    " bytes allocated after all its results are dropped");
    }
    before = after;
  }
  return "";
}

std::string check_golden(const OpCase& row) {
  if (row.golden.empty()) return "";
  const Tensors inputs = golden_tensors(row.golden, "in");
  if (inputs.empty()) {
    return concat(row.name, ": tests/golden/ops.safetensors has no entry ", row.golden,
                  "; make it with tools/make_golden.py");
  }
  const Result want{golden_tensors(row.golden, "out"), golden_tensors(row.golden, "grad")};
  return compare(row.name + " against the golden file",
                 run(row, inputs, golden_tensors(row.golden, "cot")), want, kGolden, kGolden);
}

std::string check_saved_bytes(const OpCase& row) {
  const Tensors exact = random_inputs(row);
  const Tensors cotangents = on_device(random_cotangents(row, exact), DType::f32);
  Tensors leaves = on_device(exact, DType::f32);
  for (Tensor& t : leaves) set_requires_grad(t);
  const auto before = static_cast<std::int64_t>(saved_bytes());
  const Tensors outputs = row.call(leaves);
  const auto kept = static_cast<std::int64_t>(saved_bytes()) - before;
  if (kept != row.saved_bytes) {
    return concat(row.name, ": forward saves ", kept, " bytes for backward, the row states ",
                  row.saved_bytes);
  }
  if (!row.differentiable) return "";
  backward(weighted_sum(outputs, cotangents));
  const auto left = static_cast<std::int64_t>(saved_bytes()) - before;
  if (left != 0) return concat(row.name, ": ", left, " saved bytes are still held after backward");
  return "";
}

}  // namespace duet::test
