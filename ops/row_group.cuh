// The threads that work on one row: a warp for rows of up to 512 elements, else a block. Up to
// 4096 elements each thread keeps its share in registers; longer rows are read anew.
//
//   visit_row_group(width, [&]<class Group>(Group) {
//     GPU_LAUNCH((rows_kernel<Group>), Group::blocks(rows), kRowThreads, 0, x, y, rows, width);
//   });
#pragma once

#include <algorithm>

#include "runtime/cuda/block.cuh"

namespace duet {

inline constexpr int kRowThreads = 256;  // of a block

template <int kThreads, int kCached>
struct RowGroup {
  static_assert(kThreads == cuda::kWarp || kThreads == kRowThreads);
  static constexpr bool is_cached = kCached > 0;
  static constexpr int kShare = std::max(1, kCached);     // registers for a thread's share
  static constexpr int kGroups = kRowThreads / kThreads;  // in a block
  static constexpr int kWidest = kThreads * kCached;      // row, if the shares are kept

  static unsigned blocks(std::int64_t rows) { return cuda::blocks_for(rows, kGroups); }
  __device__ static int group() { return static_cast<int>(threadIdx.x) / kThreads; }
  __device__ static int thread() { return static_cast<int>(threadIdx.x) % kThreads; }

  // f(k, j) for every element j of the row that is this thread's; k counts them where shares are
  // kept, and is 0 elsewhere.
  template <class F>
  __device__ static void each(std::int64_t width, F&& f) {
    if constexpr (is_cached) {
      for (int k = 0; k < kCached; ++k) {
        const int j = thread() + k * kThreads;
        if (j < width) f(k, static_cast<std::int64_t>(j));
      }
    } else {
      for (std::int64_t j = thread(); j < width; j += kThreads) f(0, j);
    }
  }
  // Element j of a row, where load() filled `share` with the thread's elements.
  __device__ static float at(const float* row, const float (&share)[kShare], int k,
                             std::int64_t j) {
    return is_cached ? share[k] : row[j];
  }
  __device__ static void load(const float* row, std::int64_t width, float (&share)[kShare]) {
    if constexpr (is_cached) {
      each(width, [&](int k, std::int64_t j) { share[k] = row[j]; });
    }
  }

  // Over the whole group; all its threads get the result.
  template <class Op, class T>
  __device__ static T reduce(T value) {
    if constexpr (kThreads == cuda::kWarp) {
      return cuda::warp_reduce<Op>(value);
    } else {
      return cuda::block_reduce<Op, kThreads>(value);
    }
  }
};

// Calls f with the group for rows of `width`.
template <class F>
void visit_row_group(std::int64_t width, F&& f) {
  if (width <= 128) {
    f(RowGroup<cuda::kWarp, 4>{});
  } else if (width <= 512) {
    f(RowGroup<cuda::kWarp, 16>{});
  } else if (width <= 1024) {
    f(RowGroup<kRowThreads, 4>{});
  } else if (width <= 4096) {
    f(RowGroup<kRowThreads, 16>{});
  } else {
    f(RowGroup<kRowThreads, 0>{});
  }
}

}  // namespace duet
