// rms_norm on the GPU: layer_norm's kernels without the mean.
#include "ops/norm_rows.cuh"
#include "ops/rms_norm/rms_norm.h"

namespace duet {
namespace {

void rms_norm_forward(ConstView x, ConstView delta, ConstView weight, double eps, View sum,
                      View y) {
  norm_forward<false>(x, delta, weight, ConstView{}, eps, sum, y);
}

void rms_norm_backward(ConstView x, ConstView weight, ConstView dsum, ConstView dy, double eps,
                       View dx, View parts, View dweight, bool add_dweight) {
  const std::int64_t width = weight.numel();
  if (width == 0) return;
  const std::int64_t rows = x.numel() / width;
  const RowChunks chunks = rms_norm_chunks(rows, DeviceType::cuda);
  norm_backward<false>({x.as<float>(), weight.as<float>(), dsum.as<float>(), dy.as<float>(),
                        dx.as<float>(), parts.as<float>(), nullptr, eps, rows, width, chunks.size},
                       chunks.count);
  sum_norm_parts(parts, dweight, add_dweight);
}

}  // namespace

extern const RmsNormKernels rms_norm_cuda{rms_norm_forward, rms_norm_backward};

}  // namespace duet
