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

}  // namespace

// Piece by piece in falling sizes, each until the allocator has to grow.
void fill_free_memory(double value) {
  Tensors taken;
  for (std::int64_t bytes = 1 << 20; bytes >= 512; bytes /= 2) {
    const std::uint64_t before = allocator(kCpu).stats().raw_allocations;
    while (allocator(kCpu).stats().raw_allocations == before) {
      taken.push_back(Tensor::full({bytes / 4}, value, DType::f32));
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
  const Result in_f32 = run(row, convert(inputs, DType::f32), convert(cotangents, DType::f32));
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
  const Result in_f32 = run(row, convert(inputs, DType::f32), convert(cotangents, DType::f32));
  const Result want{row.oracle(inputs), in_f64.grads};
  std::string fault = compare(row.name + " on integers, f64", in_f64, want, {}, {});
  if (fault.empty()) fault = compare(row.name + " on integers, f32", in_f32, want, {}, {});
  return fault;
}

std::string check_same_bits(const OpCase& row) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensors exact = random_inputs(row);
    const Tensors inputs = convert(exact, dtype);
    const Tensors cotangents = convert(random_cotangents(row, exact), dtype);
    allocator(kCpu).empty_cache();  // what the first run gives back is what the second one gets
    const Result first = run(row, inputs, cotangents);
    fill_free_memory(std::nan(""));
    const Result second = run(row, inputs, cotangents);
    std::string fault = compare_bits(
        concat(row.name, ", second run, in memory full of NaN (", dtype, ")"), second, first);
    if (!fault.empty()) return fault;
  }
  return "";
}

std::string check_repeated_runs(const OpCase& row) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensors exact = random_inputs(row);
    const Tensors inputs = convert(exact, dtype);
    const Tensors cotangents = convert(random_cotangents(row, exact), dtype);
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
        fault = compare(what + ", f32", Result{forward(row, convert(inputs, DType::f32)), {}},
                        Result{want, {}}, {row.rtol, row.atol}, {});
      }
      if (!fault.empty()) return fault;
    }
  }
  return "";
}

std::string check_leaks(const OpCase& row) {
  const Tensors exact = random_inputs(row);
  const Tensors inputs = convert(exact, DType::f32);
  const Tensors cotangents = convert(random_cotangents(row, exact), DType::f32);
  std::size_t before = 0;
  for (int n = 0; n < 3; ++n) {
    run(row, inputs, cotangents);
    const std::size_t after = allocator(kCpu).stats().allocated;
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
  const Tensors cotangents = convert(random_cotangents(row, exact), DType::f32);
  Tensors leaves = convert(exact, DType::f32);
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
