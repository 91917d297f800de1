// The one header that every .cu file with a kernel includes. The same sources are compiled by nvcc
// for a GPU, and by the C++ compiler for the simulator of tests/sim_cuda (DUET_CUDA=SIM). Three
// spellings take the place of raw CUDA syntax:
//
//   __global__ void add_kernel(const float* a, float* y, std::int64_t n);   // as in CUDA
//   GPU_SHARED(float, tile, [32][33]);           // __shared__ float tile[32][33];
//   GPU_DYN_SHARED(float, scratch);              // extern __shared__ float scratch[];
//   GPU_LAUNCH(add_kernel, blocks, threads, shared_bytes, a, y, n);  // on cuda::stream(), checked
//
// Inline PTX stands here and nowhere else.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "runtime/cuda/stream.h"

#if DUET_SIM_CUDA
#include "tests/sim_cuda/device.h"
#else
#define GPU_SHARED(T, name, dims) __shared__ T name dims
#define GPU_DYN_SHARED(T, name)                                        \
  extern __shared__ __align__(128) unsigned char gpu_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(gpu_dynamic_shared)
#define GPU_RUN_KERNEL_(kernel, grid, block, shared_bytes, stream, ...) \
  (kernel)<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#endif

// Throws Error(internal) naming the kernel where the launch is refused. `grid` and `block` are
// numbers or dim3, none of them 0.
#define GPU_LAUNCH(kernel, grid, block, shared_bytes, ...)                                   \
  do {                                                                                       \
    ::duet::cuda::prepare_launch(reinterpret_cast<const void*>(kernel), (shared_bytes));     \
    GPU_RUN_KERNEL_(kernel, grid, block, shared_bytes, ::duet::cuda::stream(), __VA_ARGS__); \
    ::duet::cuda::finish_launch(#kernel);                                                    \
  } while (false)
