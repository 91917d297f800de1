// What many kernels need: sums over a warp and a block, indices as int64_t. Sums go over fixed
// trees: the same bits in every run.
#pragma once

#include "runtime/cuda/port.h"

namespace duet::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kFullMask = 0xffffffffU;

// Index of this thread among all of a one-dimensional launch, and how many there are.
__device__ inline std::int64_t global_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t global_threads() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}
__device__ inline int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int warp() { return static_cast<int>(threadIdx.x) / kWarp; }

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
// NaN wins over every number, so that none is lost in a maximum.
struct Max {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};

// Every lane of a full warp gets the result over all 32 lanes.
template <class Op, class T>
__device__ inline T warp_reduce(T value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = Op{}(value, __shfl_xor_sync(kFullMask, value, offset));
  }
  return value;
}

// Every thread of a block of kThreads (whole warps, one-dimensional) gets the result over all.
// All threads must call it; it may be called again at once.
template <class Op, int kThreads, class T>
__device__ inline T block_reduce(T value) {
  static_assert(kThreads % kWarp == 0 && kThreads <= 1024);
  constexpr int kWarps = kThreads / kWarp;
  GPU_SHARED(T, of_warp, [kWarps]);
  value = warp_reduce<Op>(value);
  if constexpr (kWarps > 1) {
    if (lane() == 0) of_warp[warp()] = value;
    __syncthreads();
    value = of_warp[0];
    for (int w = 1; w < kWarps; ++w) value = Op{}(value, of_warp[w]);
    __syncthreads();  // the next call writes of_warp
  }
  return value;
}

// Blocks of `threads` that cover n elements, at most `most`: kernels go on in steps of
// global_threads().
inline unsigned blocks_for(std::int64_t n, std::int64_t threads, std::int64_t most = 1 << 16) {
  const std::int64_t blocks = (n + threads - 1) / threads;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

}  // namespace duet::cuda
