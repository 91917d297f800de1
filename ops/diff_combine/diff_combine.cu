// diff_combine on the GPU.
#include "ops/diff_combine/diff_combine.h"
#include "runtime/cuda/elementwise.cuh"

namespace duet {
namespace {

constexpr int kThreads = 256;

// y = a1 - lambda a2
struct CombineBody {
  using In = float;
  using Out = float;
  static constexpr int kIn = 3, kOut = 1, kPack = 4;
  template <int kWidth>
  __device__ void operator()(std::int64_t, const float (&in)[3][kWidth],
                             float (&out)[1][kWidth]) const {
    for (int i = 0; i < kWidth; ++i) out[0][i] = in[0][i] - in[2][i] * in[1][i];
  }
};

// A warp per row: da2 = -lambda dy, row_dots = -<dy, a2>. Either may be null.
__global__ void diff_gradient_kernel(const float* a2, const float* lambda, const float* dy,
                                     float* da2, float* row_dots, cuda::StridedDims<3> rows,
                                     std::int64_t width) {
  constexpr std::int64_t kWarps = kThreads / cuda::kWarp;
  for (std::int64_t i = blockIdx.x * kWarps + cuda::warp(); i < rows.n; i += gridDim.x * kWarps) {
    std::int64_t offset[3];
    rows.locate(i, offset);
    const float factor = -lambda[offset[1]];
    float dot = 0;
    for (std::int64_t j = cuda::lane(); j < width; j += cuda::kWarp) {
      const float g = dy[offset[2] + j];
      if (row_dots != nullptr) dot += g * a2[offset[0] + j];
      if (da2 != nullptr) da2[i * width + j] = factor * g;
    }
    if (row_dots != nullptr) {
      dot = cuda::warp_reduce<cuda::Sum>(dot);
      if (cuda::lane() == 0) row_dots[i] = -dot;
    }
  }
}

void diff_combine_forward(ConstView a1, ConstView a2, ConstView lambda, View y) {
  lambda.shape = y.shape;
  lambda.strides.push_back(0);  // one per row
  cuda::elementwise(CombineBody{}, y.shape, {a1, a2, lambda}, {y});
}

void diff_combine_backward(ConstView a2, ConstView lambda, ConstView dy, View da2, View row_dots) {
  const auto of_rows = [](const ConstView& x) {
    return Strides{x.stride(0), x.stride(1), x.stride(2)};
  };
  const cuda::StridedDims<3> rows({a2.size(0), a2.size(1), a2.size(2)},
                                  {of_rows(a2), of_rows(lambda), of_rows(dy)});
  if (rows.n == 0) return;
  GPU_LAUNCH(diff_gradient_kernel, cuda::blocks_for(rows.n, kThreads / cuda::kWarp), kThreads, 0,
             a2.as<float>(), lambda.as<float>(), dy.as<float>(), da2.as<float>(),
             row_dots.as<float>(), rows, a2.size(3));
}

}  // namespace

extern const DiffCombineKernels diff_combine_cuda{diff_combine_forward, diff_combine_backward};

}  // namespace duet
