// The simulator's engine: runs a kernel's grid on the host, one fiber per CUDA thread, and stops
// the process with one line where the kernel is wrong:
//
//   sim::options = {.order = sim::Order::random, .seed = 3};
//   sim::run_grid(blocks, 256, 0, [=] { add_kernel(a, b, y, n); }, "add_kernel");
//
//   sim_cuda: kernel add_kernel, block (7,0,0), thread (31,0,0): <what is wrong> at <file>:<line>
//
// One grid runs at a time, all of it on the calling host thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace sim {

// In which order blocks, and threads that may go on, take their turns. A missing barrier shows in
// some orders only: run kernels in all three, random with several seeds.
enum class Order { forward, reverse, random };

struct Options {
  Order order = Order::forward;
  unsigned seed = 0;   // of Order::random
  bool poison = true;  // shared memory starts as NaN (all bits set) instead of 0
  std::size_t stack_bytes = std::size_t{128} << 10;  // of each thread, for its local arrays
};
extern Options options;

// Exit status of a process that fail() ends.
inline constexpr int kExitStatus = 42;

// Prints `sim_cuda: kernel K, block (x,y,z), thread (x,y,z): what` (the part before `what` as far
// as there is a kernel, a block, a thread) to stderr and ends the process: a fiber cannot be
// unwound.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Fails where a GPU would refuse the launch: sizes of 0, more than 1024 threads, too large grids,
// more dynamic shared memory than 227 KiB.
void check_launch(dim3 grid, dim3 block, std::size_t shared_bytes, const char* kernel);

// Calls `body` once per thread of the grid. Launches are checked as in check_launch.
void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& body,
              const char* kernel);

// True while a kernel runs.
bool in_kernel();

// For handlers of SIGSEGV: fails if the address lies in the guard page of a thread's stack or of
// dynamic shared memory, else returns.
void explain_fault(const void* address);

// What GPU_LAUNCH calls, defined by the fake CUDA runtime: puts the grid on the stream. `kernel`
// lives for ever.
void launch(cudaStream_t stream, dim3 grid, dim3 block, std::size_t shared_bytes,
            std::function<void()> body, const char* kernel);

}  // namespace sim
