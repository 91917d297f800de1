// The kernels of planted_kernels.h, in the spelling of the product's kernels.
#include <cmath>

#include "tests/sim_cuda/device.h"
#include "tests/sim_cuda/planted_kernels.h"

namespace sim {
namespace {

constexpr unsigned kFullMask = 0xffffffffU;
constexpr int kReduceThreads = 128;
constexpr int kColumns = 64;
constexpr int kTile = 8;

// As GPU_LAUNCH, at once.
template <class... Parameters, class... Arguments>
void run(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
         std::size_t shared_bytes, Arguments... arguments) {
  run_grid(
      grid, block, shared_bytes, [&] { kernel(arguments...); }, name);
}

__global__ void vector_add_kernel(const float* a, const float* b, float* y, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = a[i] + b[i];
}

template <Bug kBug>
__global__ void __launch_bounds__(kReduceThreads)
    block_sums_kernel(const float* x, float* y, int n) {
  GPU_SHARED(float, sums, [kReduceThreads]);
  const int t = static_cast<int>(threadIdx.x);
  float sum = 0.0F;
  for (int i = static_cast<int>(blockIdx.x) * kReduceThreads + t; i < n;
       i += static_cast<int>(gridDim.x) * kReduceThreads) {
    sum += x[i];
  }
  if (kBug != Bug::uninitialised || t != 77) sums[t] = sum;
  if (kBug != Bug::no_barrier_before_use) __syncthreads();
  for (int half = kReduceThreads / 2; half > 0; half /= 2) {
    if (t < half) sums[t] += sums[t + half];
    if (kBug == Bug::divergent_barrier && t < half) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  }
  if (t == 0) y[blockIdx.x] = sums[0];
}

template <bool kMax>
__device__ __forceinline__ float over_warp(float value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(kFullMask, value, offset);
    value = kMax ? fmaxf(value, other) : value + other;
  }
  return value;
}

template <Bug kBug>
__global__ void softmax_rows_kernel(const float* x, float* y, int rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
  if (row >= rows) return;  // whole warps
  const float* in = x + row * kColumns;
  const float a = in[lane];
  const float b = in[lane + 32];
  const float largest = over_warp<true>(fmaxf(a, b));
  const float ea = __expf(a - largest);
  const float eb = __expf(b - largest);
  if (kBug == Bug::exited_lane && lane >= 16) return;
  if (kBug == Bug::source_outside_mask && lane < 16) __shfl_sync(0xffffU, ea, lane + 1);
  if (kBug == Bug::lane_outside_own_mask) __shfl_sync(0xffffU, ea, 0);
  if (kBug == Bug::barrier_against_shuffle && lane >= 16) __syncthreads();
  float sum = ea + eb;
  if (kBug != Bug::divergent_shuffle || lane < 16) {
    sum = over_warp<false>(sum);
  } else {
    __syncwarp();
  }
  y[row * kColumns + lane] = ea / sum;
  y[row * kColumns + lane + 32] = eb / sum;
}

template <Bug kBug>
__global__ void tiled_matmul_kernel(const float* a, const float* b, float* c, int m, int n, int k) {
  GPU_DYN_SHARED(float, shared);
  float* as = shared;
  float* bs = shared + kTile * kTile;
  const int x = static_cast<int>(threadIdx.x);
  const int y = static_cast<int>(threadIdx.y);
  const int row = static_cast<int>(blockIdx.y) * kTile + y;
  const int column = static_cast<int>(blockIdx.x) * kTile + x;
  float sum = 0.0F;
  for (int first = 0; first < k; first += kTile) {
    as[y * kTile + x] = row < m && first + x < k ? a[row * k + first + x] : 0.0F;
    bs[y * kTile + x] = column < n && first + y < k ? b[(first + y) * n + column] : 0.0F;
    if (kBug != Bug::no_barrier_before_use) __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += as[y * kTile + i] * bs[i * kTile + x];
    if (kBug != Bug::no_barrier_after_use) __syncthreads();
    if (kBug == Bug::divergent_barrier && x < 4) __syncthreads();
  }
  if (kBug == Bug::overrun && y == 0) bs[kTile * kTile + x] = 1.0F;
  if (kBug == Bug::far_overrun && y == 0) bs[kTile * kTile + 32 + x] = 1.0F;
  if (row < m && column < n) c[row * n + column] = sum;
}

template <Bug kBug>
__global__ void transpose_kernel(const float* x, float* y) {
  GPU_SHARED(float, tile, [32][33]);
  const int column = static_cast<int>(threadIdx.x);
  for (int row = static_cast<int>(threadIdx.y); row < 32; row += static_cast<int>(blockDim.y)) {
    tile[row][column] = x[row * 32 + column];
  }
  float* end = &tile[31][32] + 1;
  if (kBug == Bug::overrun && threadIdx.y == 0 && threadIdx.x == 3) *end = 1.0F;
  __syncthreads();
  for (int row = static_cast<int>(threadIdx.y); row < 32; row += static_cast<int>(blockDim.y)) {
    y[row * 32 + column] = tile[column][row];
  }
}

__global__ void visits_kernel(int* counts) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  ++counts[block * (blockDim.x * blockDim.y * blockDim.z) + thread];
}

__global__ void atomics_kernel(int* results, unsigned long long* wide, float* real) {
  const int i = static_cast<int>(threadIdx.x);
  atomicAdd(&results[0], i);
  atomicMax(&results[1], i);
  atomicMin(&results[2], i);
  atomicAdd(&results[3], atomicExch(&results[5], i));
  if (atomicCAS(&results[6], 0, i + 1) == 0) atomicAdd(&results[4], 1);
  atomicAdd(wide, 1ULL << 32);
  atomicAdd(real, 0.5F);
}

__global__ void votes_kernel(int* results) {
  const int lane = static_cast<int>(threadIdx.x);
  const int count = __syncthreads_count(lane < 5);
  const int any = __syncthreads_or(lane == 7);
  const int all = __syncthreads_and(lane < 31);
  const int bits = static_cast<int>(__ballot_sync(kFullMask, lane == 1 || lane == 4));
  const int any_lane = __any_sync(kFullMask, lane == 9);
  const int all_lanes = __all_sync(kFullMask, lane >= 0);
  const int up = __shfl_up_sync(kFullMask, lane, 3U);
  const int down = __shfl_down_sync(kFullMask, lane, 3U, 8);
  const int first = __shfl_sync(kFullMask, lane, 8, 8);
  __syncwarp();
  if (lane != 22) return;
  const int all_results[] = {count, any, all, bits, any_lane, all_lanes, up, down, first};
  for (int i = 0; i < 9; ++i) results[i] = all_results[i];
}

__global__ void empty_kernel() {}

__global__ void too_much_static_memory_kernel() {
  GPU_SHARED(float, first, [8000]);
  GPU_SHARED(float, second, [5000]);
  first[0] = second[0];
}

__global__ void dynamic_memory_kernel() {
  GPU_DYN_SHARED(float, scratch);
  scratch[threadIdx.x] = 0.0F;
}

// n + ... + 1, with a kilobyte of stack at each level.
__device__ int deep(int n) {
  volatile int local[256];
  local[n % 256] = n;
  return n == 0 ? 0 : deep(n - 1) + local[n % 256];
}
__global__ void full_stack_kernel(int levels, int* y) { *y = deep(levels); }

}  // namespace

std::vector<float> vector_add(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> y(a.size(), NAN);
  const int n = static_cast<int>(a.size());
  run("vector_add_kernel", vector_add_kernel, static_cast<unsigned>((n + 255) / 256), 256, 0,
      a.data(), b.data(), y.data(), n);
  return y;
}

std::vector<float> block_sums(const std::vector<float>& x, int blocks, Bug bug) {
  std::vector<float> y(static_cast<std::size_t>(blocks), NAN);
  auto* kernel = bug == Bug::none                    ? block_sums_kernel<Bug::none>
                 : bug == Bug::no_barrier_before_use ? block_sums_kernel<Bug::no_barrier_before_use>
                 : bug == Bug::divergent_barrier     ? block_sums_kernel<Bug::divergent_barrier>
                                                     : block_sums_kernel<Bug::uninitialised>;
  run("block_sums_kernel", kernel, static_cast<unsigned>(blocks), kReduceThreads, 0, x.data(),
      y.data(), static_cast<int>(x.size()));
  return y;
}

std::vector<float> softmax_rows(const std::vector<float>& x, int rows, Bug bug) {
  std::vector<float> y(x.size(), NAN);
  auto* kernel = bug == Bug::none                  ? softmax_rows_kernel<Bug::none>
                 : bug == Bug::divergent_shuffle   ? softmax_rows_kernel<Bug::divergent_shuffle>
                 : bug == Bug::exited_lane         ? softmax_rows_kernel<Bug::exited_lane>
                 : bug == Bug::source_outside_mask ? softmax_rows_kernel<Bug::source_outside_mask>
                 : bug == Bug::lane_outside_own_mask
                     ? softmax_rows_kernel<Bug::lane_outside_own_mask>
                     : softmax_rows_kernel<Bug::barrier_against_shuffle>;
  run("softmax_rows_kernel", kernel, static_cast<unsigned>((rows + 3) / 4), 128, 0, x.data(),
      y.data(), rows);
  return y;
}

std::vector<float> tiled_matmul(const std::vector<float>& a, const std::vector<float>& b, int m,
                                int n, int k, Bug bug) {
  std::vector<float> c(static_cast<std::size_t>(m * n), NAN);
  auto* kernel = bug == Bug::none ? tiled_matmul_kernel<Bug::none>
                 : bug == Bug::no_barrier_before_use
                     ? tiled_matmul_kernel<Bug::no_barrier_before_use>
                 : bug == Bug::no_barrier_after_use ? tiled_matmul_kernel<Bug::no_barrier_after_use>
                 : bug == Bug::divergent_barrier    ? tiled_matmul_kernel<Bug::divergent_barrier>
                 : bug == Bug::overrun              ? tiled_matmul_kernel<Bug::overrun>
                                                    : tiled_matmul_kernel<Bug::far_overrun>;
  const dim3 grid(static_cast<unsigned>((n + kTile - 1) / kTile),
                  static_cast<unsigned>((m + kTile - 1) / kTile));
  // The test of an overrun by a few bytes ends off the alignment of dynamic shared memory.
  const std::size_t bytes = 2 * kTile * kTile * sizeof(float) + (bug == Bug::overrun ? 4 : 0);
  run("tiled_matmul_kernel", kernel, grid, dim3(kTile, kTile), bytes, a.data(), b.data(), c.data(),
      m, n, k);
  return c;
}

std::vector<float> transpose(const std::vector<float>& x, Bug bug) {
  std::vector<float> y(x.size(), NAN);
  auto* kernel = bug == Bug::none ? transpose_kernel<Bug::none> : transpose_kernel<Bug::overrun>;
  run("transpose_kernel", kernel, 1, dim3(32, 8), 0, x.data(), y.data());
  return y;
}

std::vector<int> visits(dim3 grid, dim3 block) {
  std::vector<int> counts(std::size_t{grid.x} * grid.y * grid.z * block.x * block.y * block.z);
  run("visits_kernel", visits_kernel, grid, block, 0, counts.data());
  return counts;
}

std::vector<int> atomics() {
  std::vector<int> results = {0, -1, 1000, 0, 0, 0, 0};
  unsigned long long wide = 0;
  float real = 0.0F;
  run("atomics_kernel", atomics_kernel, 1, 100, 0, results.data(), &wide, &real);
  // Every value but the last to be exchanged was read once.
  return {results[0],
          results[1],
          results[2],
          results[3] + results[5],
          results[4],
          static_cast<int>(wide >> 32),
          static_cast<int>(real)};
}

std::vector<int> votes() {
  std::vector<int> results(9);
  run("votes_kernel", votes_kernel, 1, 32, 0, results.data());
  return results;
}

void launch_empty(dim3 grid, dim3 block, std::size_t shared_bytes) {
  run("empty_kernel", empty_kernel, grid, block, shared_bytes);
}
void too_much_static_memory() {
  run("too_much_static_memory_kernel", too_much_static_memory_kernel, 1, 32, 0);
}
void dynamic_memory_of_0_bytes() { run("dynamic_memory_kernel", dynamic_memory_kernel, 1, 32, 0); }
void full_stack() {
  int y = 0;
  run("full_stack_kernel", full_stack_kernel, 1, 1, 0, 1 << 20, &y);
}

}  // namespace sim
