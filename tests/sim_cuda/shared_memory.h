// Shared memory of the running block, static (GPU_SHARED) and dynamic (GPU_DYN_SHARED). It starts
// as NaN in every block, so that a read of what nobody wrote shows in the result; behind and before
// every variable lie bytes that nobody may change.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/sim_cuda/thread.h"

namespace sim {

// What GPU_SHARED declares: one per variable and instance of its function.
struct SharedVariable {
  const char* name;
  std::size_t bytes;
  std::size_t alignment;
  Place place;
  std::uint64_t block = 0;  // in which `address` holds
  void* address = nullptr;
};

void* place_shared(SharedVariable& variable);

// The variable's memory in the running block.
SIM_NO_TSAN inline void* shared_address(SharedVariable& variable) {
  return variable.block == block_serial ? variable.address : place_shared(variable);
}

// Fails if the kernel was launched with 0 bytes.
void* dynamic_shared(Place place);

// Whether the bytes lie in the running block's shared memory, all in one variable.
bool in_shared_memory(const void* address, std::size_t bytes);

// The engine calls these: before a launch, before and after every block of it. end_shared_block
// fails where a byte beside a variable was changed.
void begin_shared_grid(std::size_t dynamic_bytes);
void begin_shared_block();
void end_shared_block();

// The pages beside dynamic shared memory that fault.
bool in_shared_guard(const void* address);
[[noreturn]] void fail_shared_guard(const void* address);

}  // namespace sim
