// The fake CUDA runtime that SIM programs link instead of NVIDIA's: what tests set and ask. The
// calls themselves are declared by <cuda_runtime_api.h> and defined in runtime_*.cpp; a wrong
// program ends in sim::fail.
//
//   sim::runtime_options().schedule = sim::Schedule::random;   // or DUET_SIM_STREAMS=random
//   sim::fail_allocation(3);                                   // the third cudaMalloc from now
//   EXPECT_EQ(sim::live_bytes(), before);                      // nothing leaked
#pragma once

#include <cstddef>
#include <cstdint>

namespace sim {

// When the operations of a stream run. A GPU may take any of these orders; each shows other bugs.
enum class Schedule {
  lazy,    // at a synchronisation, and only those that it needs
  eager,   // at once, while the host waits: shows no missing synchronisation
  random,  // one by one from randomly drawn streams, at random moments
};

// NVIDIA's driver, as the runtime finds it: for CUDA 12.4 where it is too old.
enum class Driver { ok, too_old, none };

// Values at the start, and the environment variables that change them for a whole program. Two more
// set the engine's options (engine.h): DUET_SIM_ORDER=forward|reverse|random, DUET_SIM_SEED=n.
struct RuntimeOptions {
  Schedule schedule = Schedule::lazy;         // DUET_SIM_STREAMS=lazy|eager|random
  unsigned seed = 1;                          // DUET_SIM_SEED=n, for Schedule::random
  std::size_t memory = std::size_t{2} << 30;  // DUET_SIM_MEMORY=bytes: out of memory beyond
  int devices = 1;                            // DUET_SIM_DEVICES=0: no GPU
  Driver driver = Driver::ok;                 // DUET_SIM_DRIVER=ok|too_old|none
  int arch = 90;                              // DUET_SIM_ARCH=70: compute capability 7.0
  bool allow_tf32 = false;                    // DUET_SIM_TF32=1: products may ask for TF32
  // DUET_SIM_NO_EPILOGUES=bits: cublasLt finds no algorithm for an epilogue with one of these bits,
  // 512 for BGRADB, 32 for every GELU. It promises one for no shape, type or GPU.
  unsigned no_epilogues = 0;
};
RuntimeOptions& runtime_options();

// The n-th cudaMalloc from now (1 is the next one) fails once with cudaErrorMemoryAllocation; 0
// calls it off. DUET_SIM_FAIL_MALLOC=n counts from the program's start.
void fail_allocation(std::int64_t n);

std::int64_t allocations();       // cudaMalloc calls that were given memory, since the start
std::int64_t live_allocations();  // of them, not yet freed
std::size_t live_bytes();
std::int64_t operations();  // kernels, copies and so on that have run

// Exits unless `pointer` lies in live device memory, null, or pinned host memory: for arguments of
// kernels, which a GPU could not read elsewhere.
void require_device_argument(const void* pointer, const char* kernel);

}  // namespace sim
