// What bounds the memory of this process: the machine, its control groups, and ulimit.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace duet {

struct MemoryLimit {
  std::string name;  // "machine memory", "address-space limit (ulimit -v)"
  std::size_t total = 0;
  std::size_t free = 0;
  // Counts what was asked for, written or not; the others count what was written.
  bool counts_address_space = false;
};

// Every limit that there is; the machine comes first.
std::vector<MemoryLimit> memory_limits();
// The one with the least free bytes; total 0 when none is known.
MemoryLimit tightest_memory_limit();

}  // namespace duet
