#include "tests/ops/proof.h"

#include "tests/ops/checks.h"
#include "tests/ops/harness.h"

namespace duet::test {
namespace {

constexpr const char* kNeedsF64 = "needs f64";

}  // namespace

const std::vector<Check>& all_checks() {
  static const std::vector<Check> checks{
      {"repeated runs", check_repeated_runs, "not deterministic"},
      {"same bits", check_same_bits, "reads uninitialised memory"},
      {"oracle", check_oracle, "wrong output"},
      {"integers", check_integers, "inexact on whole numbers"},
      {"gradients", check_gradients, "wrong gradient", kNeedsF64},
      {"wrong gradients", check_wrong_gradients_are_caught, "a gradient too small to be checked",
       kNeedsF64},
      {"two calls", check_calls_apart, "keeps state between calls"},
      {"large inputs", check_large_inputs, "overflows on large inputs"},
      {"strides", check_strides, "ignores strides"},
      {"strided cotangents", check_strided_cotangents, "ignores strides of grad_output"},
      {"small sizes", check_small_sizes, "wrong for size 0 or 1"},
      {"same tensor", check_same_tensor_twice, "wrong when one tensor is passed twice"},
      {"outputs twice", check_outputs_used_twice, "wrong when an output is used twice"},
      {"single gradients", check_single_gradients, "wrong when only one input requires grad"},
      {"second order", check_second_order, "wrong second derivative", kNeedsF64},
      {"wrong second order", check_wrong_second_order_is_caught,
       "a second derivative too small to be checked", kNeedsF64},
      {"broadcasting", check_broadcasting, "wrong where shapes broadcast"},
      {"accumulation", check_accumulation, "wrong when it adds to a gradient"},
      {"NaN and infinity", check_specials, "NaN or infinity does not spread as stated"},
      {"saved bytes", check_saved_bytes, "saves too much"},
      {"leaks", check_leaks, "leak: memory is not given back"},
      {"golden", check_golden, "differs from PyTorch's values", kNeedsF64},
      {"errors", check_errors, "takes what it must refuse"},
      {"meta", check_meta, "differs on meta"},
  };
  return checks;
}

bool runs_on(const Check& check, Device device) {
  return check.cpu_only == nullptr || device.type == DeviceType::cpu;
}

std::optional<Fault> first_fault(const OpCase& row) {
  const PoisonScope poison(allocator(test_device()),
                           true);  // who reads what is no longer his, or not yet, gets NaN
  for (const Check& c : all_checks()) {
    if (!runs_on(c, test_device())) continue;
    // In an installed binary the file may be missing; the tests' own check_golden insists on it.
    if (c.run == check_golden && !golden_file_is_there()) continue;
    std::string message;
    try {
      message = c.run(row);
    } catch (const std::exception& e) {
      message = concat(row.name, ": threw: ", e.what());
    }
    if (!message.empty()) return Fault{c.name, kind_of(c, row, message), message};
  }
  return std::nullopt;
}

}  // namespace duet::test
