// What the whole process of a run on the CPU comes to: its tensors, and all that lies beside them.
#pragma once

#include <cstdint>

#include "train/run_config.h"

namespace duet {

struct ProcessBytes {
  std::uint64_t resident = 0;  // in main memory, as control groups and people count
  std::uint64_t mapped = 0;    // of address space, as ulimit -v counts
};

// The process before it runs anything: program, libraries, threads. Measured at the first call,
// which starts the threads; throws Error(memory) where they cannot start.
const ProcessBytes& process_before_run();

// What a run adds to it, at most. `reserved`: what its tensors take from the system. Requires that
// the run's products are the last that were planned on this thread (gemm_needs).
ProcessBytes added_by_run(const RunConfig& config, std::uint64_t reserved);

}  // namespace duet
