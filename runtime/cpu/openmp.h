// OpenMP's threads: how many it really gives, whatever is asked of it, and where they may run.
// oneDNN splits a product by the number that OpenMP names; a thread that never comes would leave
// its share undone.
#pragma once

#include <cstddef>

namespace duet {

inline constexpr int kMostThreads = 4096;  // that may be asked for

// Lets parallel regions of this thread run on `wanted` threads and returns how many they get:
// OMP_THREAD_LIMIT may leave fewer. Throws Error(usage) for stacks that are too small for the
// kernels or threads that the system does not start, Error(memory) where their stacks do not fit.
int start_team(int wanted);
int wanted_threads();  // by the last start_team()

// The stack of each thread: OMP_STACKSIZE, or what the system gives any thread.
std::size_t thread_stack_bytes();

// Where the user asks for it (OMP_PROC_BIND, OMP_PLACES), OpenMP binds the main thread to one
// place. This takes the binding from the calling thread: a process that it becomes or starts
// inherits its affinity, and would take that for all there is.
void unbind_thread();

}  // namespace duet
