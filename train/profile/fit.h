// What fits into so many bytes: the largest batch for each recompute mode, and the settings that
// are predicted to be the fastest of those that fit.
//
//   const FitResult result = fit(config, {*parse_bytes("16GiB"), MemoryMeasure::resident});
//   write_out(fit_text(result));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "train/profile/plan.h"
#include "train/run_config.h"

namespace duet {

// What a plan may come to.
struct MemoryBudget {
  std::uint64_t bytes = ~std::uint64_t{0};
  MemoryMeasure measure = MemoryMeasure::tensors;
  std::uint64_t tensors = ~std::uint64_t{0};  // beside `bytes`, whatever its measure
};

// A choice of the keys that trade time for memory.
struct FitOption {
  RecomputeMode recompute = RecomputeMode::none;
  std::int64_t batch_size = 0;  // 0: not even one window fits
  std::int64_t gradient_accumulation_steps = 1;
  std::uint64_t planned_bytes = 0;  // its tensors' peak; that of one window where none fits
  std::uint64_t process_bytes = 0;  // the same in the limit's measure, if that is of the process
  double cost = 0;                  // predicted time of a token, as floating-point operations
};

struct FitResult {
  RunConfig run;            // that was asked about
  Device device;            // that the plans stand for
  std::uint64_t limit = 0;  // bytes, of
  MemoryMeasure measure = MemoryMeasure::tensors;
  // The largest batch_size under each recompute mode: one window more exceeds the limit.
  std::vector<FitOption> modes;
  std::optional<FitOption> fastest;    // of `modes`, by the predicted time of a token
  std::optional<FitOption> same_step;  // the fastest with as many windows in a step as `run`
  bool monotone = true;                // no batch that was planned took less than a smaller one
};

// A process has a little less than its budget to plan with: it differs a little each time that it
// starts. Plans some dozens of steps on meta (plan_memory). Requires what plan_memory requires;
// throws Error(usage) for a model that no batch would help (check_kernels).
FitResult fit(const RunConfig& run, const MemoryBudget& budget);

// A token's forward and backward, what recompute runs again, and what moving the weights costs: for
// every micro-batch their reads and the sum of gradients, for every step the optimizer's.
double predicted_cost(const RunConfig& run);

RunConfig with_option(RunConfig run, const FitOption& option);
// "--batch_size 6 --gradient_accumulation_steps 2 --recompute block"
std::string fit_flags(const FitOption& option);
// "a setting that fits: --batch_size 6 ... (planned 812 MiB of 900 MiB)", or what to do where no
// batch fits: for the messages of runs that are refused.
std::string fit_advice(const FitResult& result);

std::string fit_text(const FitResult& result);  // for a terminal
std::string fit_json(const FitResult& result);

}  // namespace duet
