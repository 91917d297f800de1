#include "train/profile/fit.h"

#include <algorithm>
#include <map>

#include "models/enum_names.h"
#include "models/flops.h"
#include "runtime/error.h"
#include "runtime/printable.h"
#include "train/device_choice.h"
#include "train/profile/plan.h"
#include "train/run_checks.h"

namespace duet {
namespace {

// What train/config_keys.cpp takes.
constexpr std::int64_t kMostWindows = std::int64_t{1} << 20;
constexpr std::int64_t kMostMicroBatches = 65'536;
// Operations in the time of one byte from memory: the balance of a processor with a few cores. Only
// the weights' traffic is counted by it, so it matters for small micro-batches alone.
constexpr double kFlopsPerByte = 16;

constexpr RecomputeMode kModes[] = {RecomputeMode::none, RecomputeMode::mlp, RecomputeMode::attn,
                                    RecomputeMode::block};

double cost_of(const RunConfig& run, double parameters) {
  const double arithmetic = flops_per_token(run.model, run.model.block_size) +
                            recomputed_flops_per_token(run.model, run.model.block_size);
  // Forward and backward read a weight once each and add to its gradient; what runs again reads it
  // once more. The optimizer reads a gradient twice, and reads and writes weight and moments.
  const double width = run.dtype == "bfloat16" ? 2 : 4;
  const double reads = run.model.recompute == RecomputeMode::none ? 4 : 5;
  const double per_micro_batch = reads * width * parameters;
  const double per_step = 8 * 4 * parameters;
  const auto windows = static_cast<double>(run.batch_size);
  const auto tokens = static_cast<double>(run.model.block_size) * windows;
  const auto micro_batches = static_cast<double>(run.gradient_accumulation_steps);
  return arithmetic + kFlopsPerByte * (per_micro_batch + per_step / micro_batches) / tokens;
}

// By how much a process may differ from one start to the next.
std::uint64_t variation(std::uint64_t limit) {
  return std::min(limit, (std::uint64_t{1} << 20) + limit / 256);
}

// Plans of one run with other batches and modes, each made once.
class Plans {
 public:
  Plans(const RunConfig& run, const MemoryBudget& budget)
      : run_(run), budget_(budget), parameters_(static_cast<double>(parameters_of(run.model))) {}

  bool fits(FitOption& option) {
    const MemoryPlan& plan = plan_of(option);
    option.planned_bytes = plan.peak();
    const bool whole = budget_.measure != MemoryMeasure::tensors;
    option.process_bytes = whole ? plan.in(budget_.measure) : 0;
    return plan.peak() <= budget_.tensors &&
           plan.in(budget_.measure) <= budget_.bytes - (whole ? variation(budget_.bytes) : 0);
  }

  // The largest batch, with the run's number of micro-batches.
  FitOption largest(RecomputeMode mode) {
    FitOption good{mode, 0, run_.gradient_accumulation_steps};
    const auto with = [&](std::int64_t batch_size) {
      FitOption option = good;
      option.batch_size = batch_size;
      return option;
    };
    FitOption bad = with(1);
    while (fits(bad)) {
      good = bad;
      if (good.batch_size == kMostWindows) break;
      bad = with(2 * good.batch_size);
    }
    if (good.batch_size == 0) {
      good.planned_bytes = bad.planned_bytes;
      good.process_bytes = bad.process_bytes;
    }
    while (good.batch_size > 0 && bad.batch_size - good.batch_size > 1) {
      FitOption middle = with(good.batch_size + (bad.batch_size - good.batch_size) / 2);
      (fits(middle) ? good : bad) = middle;
    }
    add_cost(good);
    return good;
  }

  // As many windows in a step as the run has, in fewer at a time; nothing if not even one fits.
  std::optional<FitOption> same_step(const FitOption& largest) {
    const std::int64_t windows = run_.batch_size * run_.gradient_accumulation_steps;
    for (std::int64_t n = std::min(largest.batch_size, run_.batch_size); n > 0; --n) {
      if (windows % n != 0 || windows / n > kMostMicroBatches) continue;
      // More micro-batches keep gradients from one to the next, so each choice has its own plan.
      FitOption option{largest.recompute, n, windows / n};
      if (!fits(option)) continue;
      add_cost(option);
      return option;
    }
    return std::nullopt;
  }

  bool monotone() const {
    for (auto next = plans_.begin(), last = next == plans_.end() ? next : next++;
         next != plans_.end(); last = next++) {
      const bool same_kind = last->first.first == next->first.first;
      if (same_kind && next->second.in(budget_.measure) < last->second.in(budget_.measure)) {
        return false;
      }
    }
    return true;
  }

 private:
  void add_cost(FitOption& option) {
    if (option.batch_size > 0) option.cost = cost_of(with_option(run_, option), parameters_);
  }

  const MemoryPlan& plan_of(const FitOption& option) {
    const Key key{{option.recompute, option.gradient_accumulation_steps}, option.batch_size};
    const auto known = plans_.find(key);
    if (known != plans_.end()) return known->second;
    constexpr std::uint64_t kMost = ~std::uint64_t{0};
    MemoryPlan plan{kMost, kMost, kMost, {kMost, kMost}};
    try {
      plan = plan_memory(with_option(run_, option));
    } catch (const Error& e) {
      // Sizes that overflow, or more than there are addresses.
      if (e.kind() != ErrorKind::memory && e.kind() != ErrorKind::shape) throw;
    }
    return plans_[key] = plan;
  }

  // Mode and micro-batches, then the batch: in the map, batches of one kind are neighbours.
  using Key = std::pair<std::pair<RecomputeMode, std::int64_t>, std::int64_t>;
  const RunConfig& run_;
  MemoryBudget budget_;
  double parameters_;
  std::map<Key, MemoryPlan> plans_;
};

void keep_cheaper(std::optional<FitOption>& best, const std::optional<FitOption>& option) {
  if (option && option->batch_size > 0 && (!best || option->cost < best->cost)) best = option;
}

}  // namespace

double predicted_cost(const RunConfig& run) {
  return cost_of(run, static_cast<double>(parameters_of(run.model)));
}

FitResult fit(const RunConfig& run, const MemoryBudget& budget) {
  FitResult result;
  result.run = run;
  result.device = planning_device(run.device);
  check_kernels(run.model, result.device);
  result.limit = budget.bytes;
  result.measure = budget.measure;
  Plans plans(run, budget);
  for (const RecomputeMode mode : kModes) {
    const FitOption largest = plans.largest(mode);
    result.modes.push_back(largest);
    keep_cheaper(result.fastest, largest);
    keep_cheaper(result.same_step, plans.same_step(largest));
  }
  result.monotone = plans.monotone();
  return result;
}

RunConfig with_option(RunConfig run, const FitOption& option) {
  run.model.recompute = option.recompute;
  run.batch_size = option.batch_size;
  run.gradient_accumulation_steps = option.gradient_accumulation_steps;
  return run;
}

}  // namespace duet
