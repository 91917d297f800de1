// layer_norm on the GPU.
#include "ops/layer_norm/layer_norm.h"
#include "ops/norm_rows.cuh"

namespace duet {
namespace {

void layer_norm_forward(ConstView x, ConstView delta, ConstView weight, ConstView bias, double eps,
                        View sum, View y) {
  norm_forward<true>(x, delta, weight, bias, eps, sum, y);
}

void layer_norm_backward(ConstView x, ConstView weight, ConstView dsum, ConstView dy, double eps,
                         View dx, View dweight_parts, View dweight, bool add_dweight,
                         View dbias_parts, View dbias, bool add_dbias) {
  const std::int64_t width = weight.numel();
  if (width == 0) return;
  const std::int64_t rows = x.numel() / width;
  const RowChunks chunks = layer_norm_chunks(rows, DeviceType::cuda);
  norm_backward<true>(
      {x.as<float>(), weight.as<float>(), dsum.as<float>(), dy.as<float>(), dx.as<float>(),
       dweight_parts.as<float>(), dbias_parts.as<float>(), eps, rows, width, chunks.size},
      chunks.count);
  sum_norm_parts(dweight_parts, dweight, add_dweight);
  sum_norm_parts(dbias_parts, dbias, add_dbias);
}

}  // namespace

extern const LayerNormKernels layer_norm_cuda{layer_norm_forward, layer_norm_backward};

}  // namespace duet
