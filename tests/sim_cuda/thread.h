// A CUDA thread and its warp as the engine keeps them, and the engine's inner interface: how a
// thread waits and how it is let go on.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/sim_cuda/fiber.h"
#include "tests/sim_cuda/sanitizers.h"

namespace sim {

inline constexpr unsigned kWarpLanes = 32;

// A line of a kernel's source. As a default argument, here() is the line of the call.
struct Place {
  const char* file = "";
  int line = 0;

  static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  SIM_NO_TSAN bool operator==(const Place& other) const {
    return line == other.line && (file == other.file || std::strcmp(file, other.file) == 0);
  }
};

// Carries out a warp operation for all lanes of the mask at once. lanes[i] is what lane i brought.
using WarpFunction = void (*)(void* const* lanes, unsigned mask);

enum class State : unsigned char { unstarted, running, at_barrier, in_warp_operation, finished };

struct Warp;
struct Thread {
  uint3 index{};        // threadIdx
  unsigned number = 0;  // in its block; x runs fastest
  unsigned lane = 0;
  Warp* warp = nullptr;
  Fiber* fiber = nullptr;
  State state = State::unstarted;
  Place place;                  // where it waits
  unsigned copy_groups = 0;     // committed, see async_copy.h
  unsigned pending_copies = 0;  // started, not complete
  void* tsan = nullptr;         // its context in ThreadSanitizer
};

// A warp operation that some lanes of its mask have come to, and others not yet.
struct Meeting {
  unsigned mask = 0;
  unsigned arrived = 0;  // bits of lanes, as in the mask
  WarpFunction function = nullptr;
  Place place;
};

struct Warp {
  Thread* lanes[kWarpLanes] = {};
  unsigned existing = 0;          // bits of the lanes that the block has
  unsigned alive = 0;             // and that have not left the kernel
  std::vector<Meeting> meetings;  // several only where lanes with other masks go separate ways
  void* arguments[kWarpLanes] = {};
  unsigned operations = 0;
  long tokens[2] = {};  // for ThreadSanitizer: one operation's lanes meet in one of them
};

extern Thread* current;  // the running thread, or null in between
extern uint3 block_index;
extern dim3 block_size;
extern dim3 grid_size;
extern std::uint64_t block_serial;  // counts all blocks of all launches

SIM_NO_TSAN inline Thread& current_thread() { return *current; }

// Lets others take their turns; returns when `thread`, the current one, was made ready and chosen.
void wait_for_turn(Thread& thread);
void make_ready(Thread& thread);

// For fail(): what runs now.
const char* kernel_name();
bool in_block();

// ThreadSanitizer sees every CUDA thread as a thread of its own, and the engine, whoever calls it,
// as one more. These change the name under which it books what follows; what a thread did before
// tsan_release(token) is ordered before what follows another's tsan_acquire(token).
extern void* tsan_engine;
[[gnu::always_inline]] inline void enter_engine() {
  if constexpr (kTsan) __tsan_switch_to_fiber(tsan_engine, 1);
}
[[gnu::always_inline]] inline void leave_engine([[maybe_unused]] Thread& thread) {
  if constexpr (kTsan) __tsan_switch_to_fiber(thread.tsan, 1);
}
[[gnu::always_inline]] inline void tsan_acquire([[maybe_unused]] void* token) {
  if constexpr (kTsan) __tsan_acquire(token);
}
[[gnu::always_inline]] inline void tsan_release([[maybe_unused]] void* token) {
  if constexpr (kTsan) __tsan_release(token);
}

}  // namespace sim
