// What a run will hold at its peak, walked on meta before it takes any of it.
//
//   const MemoryPlan plan = plan_memory(config);
//   if (plan.process.resident > limit) ...
#pragma once

#include <algorithm>
#include <cstdint>

#include "train/profile/process_plan.h"
#include "train/run_config.h"

namespace duet {

// In what a plan is held against a limit.
enum class MemoryMeasure : std::uint8_t {
  tensors,   // live bytes of tensors: the device's memory on CUDA
  resident,  // the process in main memory: on the CPU
  mapped,    // its address space: under ulimit -v or -d
};

struct MemoryPlan {
  // Live bytes of our tensors, exact: on meta the same calls reach the same allocator.
  std::uint64_t step = 0;        // peak of a training step: weights, moments and batches included
  std::uint64_t evaluation = 0;  // the same of an evaluation and its diagnostics
  std::uint64_t peak() const { return std::max(step, evaluation); }
  std::uint64_t reserved = 0;  // what the allocator takes from the system for them
  ProcessBytes process;        // the whole process at its peak, at most; on the CPU
  std::uint64_t in(MemoryMeasure measure) const {
    if (measure == MemoryMeasure::tensors) return peak();
    return measure == MemoryMeasure::resident ? process.resident : process.mapped;
  }
};

// Of a run on config.device. Needs neither the memory nor the device it speaks of, and takes
// milliseconds. Requires the sizes that follow from the tokenizer (resolve_model). Kernels of the
// CPU keep scratch for each thread, and oneDNN's products want more or less of it by instruction
// set: the plan is that of num_threads() threads on this processor (planned_for_words). Throws
// Error(usage) for a dtype that there is not, Error(shape) for what the device's ops do not take,
// Error(memory) where the threads cannot start.
MemoryPlan plan_memory(const RunConfig& config);

}  // namespace duet
