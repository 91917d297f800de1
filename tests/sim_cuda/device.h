// CUDA's device language for the C++ compiler: what runtime/cuda/port.h includes when the kernels
// are to run in the simulator. A .cu file sees the same names as with nvcc, and the three spellings
// of port.h; NVIDIA's headers define __global__ and __device__ as nothing.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/sim_cuda/atomics.h"
#include "tests/sim_cuda/barrier.h"
#include "tests/sim_cuda/engine.h"
#include "tests/sim_cuda/intrinsics.h"
#include "tests/sim_cuda/runtime.h"
#include "tests/sim_cuda/shared_memory.h"
#include "tests/sim_cuda/thread.h"
#include "tests/sim_cuda/warp.h"

#undef __shared__
#define __shared__ \
  static_assert(false, "write GPU_SHARED or GPU_DYN_SHARED, see runtime/cuda/port.h");
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))

#define threadIdx (::sim::current_thread().index)
#define blockIdx (::sim::block_index)
#define blockDim (::sim::block_size)
#define gridDim (::sim::grid_size)
inline constexpr int warpSize = 32;

// `place` is where the kernel's source has the call.
inline void __syncthreads(sim::Place place = sim::Place::here()) {
  sim::sync_threads(false, place);
}
inline int __syncthreads_count(int vote, sim::Place place = sim::Place::here()) {
  return static_cast<int>(sim::sync_threads(vote != 0, place).votes);
}
inline int __syncthreads_or(int vote, sim::Place place = sim::Place::here()) {
  return sim::sync_threads(vote != 0, place).votes != 0;
}
inline int __syncthreads_and(int vote, sim::Place place = sim::Place::here()) {
  const sim::Arrivals arrivals = sim::sync_threads(vote != 0, place);
  return arrivals.votes == arrivals.threads;
}

inline void __syncwarp(unsigned mask = 0xffffffffU, sim::Place place = sim::Place::here()) {
  sim::sync_warp(mask, place);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              sim::Place place = sim::Place::here()) {
  return sim::shuffle_index(mask, value, source, width, place);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 sim::Place place = sim::Place::here()) {
  return sim::shuffle_up(mask, value, delta, width, place);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   sim::Place place = sim::Place::here()) {
  return sim::shuffle_down(mask, value, delta, width, place);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  sim::Place place = sim::Place::here()) {
  return sim::shuffle_xor(mask, value, lane_mask, width, place);
}
inline unsigned __ballot_sync(unsigned mask, int vote, sim::Place place = sim::Place::here()) {
  return sim::ballot(mask, vote != 0, place);
}
inline int __any_sync(unsigned mask, int vote, sim::Place place = sim::Place::here()) {
  return sim::ballot(mask, vote != 0, place) != 0;
}
inline int __all_sync(unsigned mask, int vote, sim::Place place = sim::Place::here()) {
  return sim::ballot(mask, vote != 0, place) == mask;
}

// Memory is one for all fibers: nothing is left to order.
inline void __threadfence() {}
inline void __threadfence_block() {}
[[noreturn]] inline void __trap(sim::Place place = sim::Place::here()) {
  sim::fail("__trap at %s:%d", place.file, place.line);
}

#define GPU_SHARED(T, name, dims)                                                            \
  using sim_type_of_##name = T dims;                                                         \
  static constinit ::sim::SharedVariable sim_variable_##name{                                \
      #name, sizeof(sim_type_of_##name), alignof(sim_type_of_##name), {__FILE__, __LINE__}}; \
  auto& name = *static_cast<sim_type_of_##name*>(::sim::shared_address(sim_variable_##name))

#define GPU_DYN_SHARED(T, name) \
  T* const name = static_cast<T*>(::sim::dynamic_shared({__FILE__, __LINE__}))

#define GPU_RUN_KERNEL_(kernel, grid, block, shared_bytes, stream, ...)     \
  ::sim::launch_kernel((kernel), (grid), (block), (shared_bytes), (stream), \
                       #kernel __VA_OPT__(, ) __VA_ARGS__)

namespace sim {

// A GPU cannot read the host's memory; the simulator could, and so looks at pointers and views.
template <class T>
void check_argument(const T& argument, const char* kernel) {
  if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>) {
    require_device_argument(argument, kernel);
  } else if constexpr (requires { argument.data; }) {
    if constexpr (std::is_pointer_v<decltype(argument.data)>) {
      require_device_argument(argument.data, kernel);
    }
  }
}

// The arguments are kept by value until the kernel runs, converted to the kernel's parameters.
template <class... Parameters, class... Arguments>
void launch_kernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
                   cudaStream_t stream, const char* name, Arguments&&... arguments) {
  static_assert((!std::is_reference_v<Parameters> && ...), "a kernel takes its arguments by value");
  static_assert((std::is_trivially_copyable_v<Parameters> && ...),
                "a kernel's arguments are copied to the GPU as bytes");
  static_assert((sizeof(Parameters) + ... + 0) <= 4096, "a kernel has 4096 bytes of arguments");
  std::tuple<Parameters...> kept(std::forward<Arguments>(arguments)...);
  std::apply([&](const Parameters&... all) { (check_argument(all, name), ...); }, kept);
  launch(
      stream, grid, block, shared_bytes, [kernel, kept] { std::apply(kernel, kept); }, name);
}

}  // namespace sim
