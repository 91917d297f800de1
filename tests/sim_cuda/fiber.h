// Fibers: many stacks on one host thread, each left and entered again at will. A CUDA thread that
// waits at a barrier leaves its stack as it is; that costs a few nanoseconds, a host thread would
// cost microseconds.
#pragma once

#include <cstddef>

namespace sim {

struct Fiber {
  void* stack_pointer = nullptr;  // while the fiber is left
  const void* stack = nullptr;    // its lowest address
  std::size_t bytes = 0;
  void* asan_frames = nullptr;
};

// A fiber that calls `entry` when it is first switched to. entry() begins with arrived() and never
// returns. The fiber lives as long as the process.
Fiber* new_fiber(std::size_t stack_bytes, void (*entry)());

// Leaves the stack of `from`, which is the running one, until somebody switches to `from` again.
void switch_fiber(Fiber& from, Fiber& to);
void arrived();

// True where the address lies in the guard page below some fiber's stack.
bool in_stack_guard(const void* address);

}  // namespace sim
