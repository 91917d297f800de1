// sum on the GPU. Sums in double, as on the CPU: memory is what a sum waits for. Long sums go over
// parts, which a second launch adds up.
#include "ops/reduce/reduce.h"
#include "runtime/cuda/elementwise.cuh"

namespace duet {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 32;  // outputs side by side of a block that adds columns
constexpr int kLines = kThreads / kColumns;

// Output o of part p is the sum of the part's share of x[kept(o) + reduced(r)] over r.
template <class In, class Out>
struct Reduction {
  const In* x;
  Out* y;  // [outputs, parts]
  cuda::StridedDims<1> kept, reduced;
  std::int64_t outputs, n, parts;

  __device__ std::int64_t begin(std::int64_t part) const {
    const std::int64_t length = (n + parts - 1) / parts;
    return part * length < n ? part * length : n;
  }
  __device__ const In* at(const cuda::StridedDims<1>& dims, const In* base, std::int64_t i) const {
    std::int64_t offset[1];
    dims.locate(i, offset);
    return base + offset[0];
  }
  // What one of `threads` threads adds up.
  __device__ double share(std::int64_t output, std::int64_t part, int thread, int threads) const {
    const In* base = at(kept, x, output);
    const std::int64_t end = begin(part + 1);
    double sum = 0;
    if (reduced.ndim == 1) {
      const std::int64_t step = reduced.step[0][0];
      for (std::int64_t r = begin(part) + thread; r < end; r += threads) {
        sum += static_cast<double>(base[r * step]);
      }
    } else {
      for (std::int64_t r = begin(part) + thread; r < end; r += threads) {
        sum += static_cast<double>(*at(reduced, base, r));
      }
    }
    return sum;
  }
};

// A warp per output and part.
template <class In, class Out>
__global__ void sum_rows_by_warp_kernel(Reduction<In, Out> sums) {
  constexpr std::int64_t kWarps = kThreads / cuda::kWarp;
  for (std::int64_t i = blockIdx.x * kWarps + cuda::warp(); i < sums.outputs * sums.parts;
       i += gridDim.x * kWarps) {
    const double share = sums.share(i / sums.parts, i % sums.parts, cuda::lane(), cuda::kWarp);
    const double sum = cuda::warp_reduce<cuda::Sum>(share);
    if (cuda::lane() == 0) sums.y[i] = static_cast<Out>(sum);
  }
}

// A block per output and part.
template <class In, class Out>
__global__ void sum_rows_kernel(Reduction<In, Out> sums) {
  for (std::int64_t i = blockIdx.x; i < sums.outputs * sums.parts; i += gridDim.x) {
    const double share =
        sums.share(i / sums.parts, i % sums.parts, static_cast<int>(threadIdx.x), kThreads);
    const double sum = cuda::block_reduce<cuda::Sum, kThreads>(share);
    if (threadIdx.x == 0) sums.y[i] = static_cast<Out>(sum);
  }
}

// A block per kColumns outputs and part; thread (line, column) adds every kLines-th element.
template <class In, class Out>
__global__ void sum_columns_kernel(Reduction<In, Out> sums) {
  GPU_SHARED(double, of_line, [kLines][kColumns]);
  const int column = cuda::lane(), line = cuda::warp();
  const std::int64_t tiles = (sums.outputs + kColumns - 1) / kColumns;
  for (std::int64_t i = blockIdx.x; i < tiles * sums.parts; i += gridDim.x) {
    const std::int64_t output = i % tiles * kColumns + column, part = i / tiles;
    of_line[line][column] = output < sums.outputs ? sums.share(output, part, line, kLines) : 0.0;
    __syncthreads();
    if (line == 0 && output < sums.outputs) {
      double sum = of_line[0][column];
      for (int l = 1; l < kLines; ++l) sum += of_line[l][column];
      sums.y[output * sums.parts + part] = static_cast<Out>(sum);
    }
    __syncthreads();  // the next tile writes of_line
  }
}

template <class In, class Out>
void launch(const Reduction<In, Out>& sums, bool columns) {
  const std::int64_t all = sums.outputs * sums.parts;
  if (columns) {
    const std::int64_t tiles = (sums.outputs + kColumns - 1) / kColumns;
    GPU_LAUNCH((sum_columns_kernel<In, Out>), cuda::blocks_for(tiles * sums.parts, 1), kThreads, 0,
               sums);
  } else if (sums.n / sums.parts <= 2 * kThreads) {
    GPU_LAUNCH((sum_rows_by_warp_kernel<In, Out>), cuda::blocks_for(all, kThreads / cuda::kWarp),
               kThreads, 0, sums);
  } else {
    GPU_LAUNCH((sum_rows_kernel<In, Out>), cuda::blocks_for(all, 1), kThreads, 0, sums);
  }
}

void sum(ConstView x, View y, View parts) {
  const std::int64_t outputs = y.numel();
  if (outputs == 0) return;
  Shape kept, reduced;
  Strides kept_strides, reduced_strides;
  for (int d = 0; d < x.ndim(); ++d) {
    (d < y.ndim() ? kept : reduced).push_back(x.shape[d]);
    (d < y.ndim() ? kept_strides : reduced_strides).push_back(x.strides[d]);
  }
  const cuda::StridedDims<1> kept_dims(kept, {kept_strides}),
      reduced_dims(reduced, {reduced_strides});
  const bool columns = adds_columns(x, y.ndim());
  if (parts.data == nullptr) {
    launch(Reduction<float, float>{x.as<float>(), y.as<float>(), kept_dims, reduced_dims, outputs,
                                   reduced.numel(), 1},
           columns);
    return;
  }
  const std::int64_t count = parts.size(1);
  launch(Reduction<float, double>{x.as<float>(), parts.as<double>(), kept_dims, reduced_dims,
                                  outputs, reduced.numel(), count},
         columns);
  launch(Reduction<double, float>{parts.as<double>(), y.as<float>(),
                                  cuda::StridedDims<1>({outputs}, {Strides{count}}),
                                  cuda::StridedDims<1>({count}, {Strides{1}}), outputs, count, 1},
         false);
}

}  // namespace

extern const ReduceKernels reduce_cuda{sum};

}  // namespace duet
