#include "ops/matmul/operand.h"

#include "runtime/cpu/onednn.h"
#include "runtime/memory_ops.h"

namespace duet {
namespace {

// The stride that walks all leading dimensions as one, or -1.
std::int64_t merged_row_stride(const Tensor& x) {
  std::int64_t stride = -1;
  std::int64_t expected = -1;
  for (int d = x.ndim() - 2; d >= 0; --d) {
    if (x.shape()[d] == 1) continue;
    if (stride < 0) {
      stride = x.strides()[d];
    } else if (x.strides()[d] != expected) {
      return -1;
    }
    expected = x.strides()[d] * x.shape()[d];
  }
  return stride < 0 ? x.shape().back() : stride;
}

}  // namespace

Tensor as_rows(const Tensor& x) {
  const std::int64_t columns = x.shape().back();
  std::int64_t rows = 1;
  for (int d = 0; d + 1 < x.ndim(); ++d) rows *= x.shape()[d];
  if (x.numel() == 0) return x.as_strided({rows, columns}, {columns, 1}, x.offset());
  if (const std::int64_t stride = merged_row_stride(x); stride >= 0) {
    return x.as_strided({rows, columns}, {stride, x.strides().back()}, x.offset());
  }
  return clone(x).reshape_view({rows, columns});
}

Tensor as_gemm_operand(const Tensor& x) {
  if (x.dtype() == DType::f64 || x.numel() == 0 || is_gemm_operand(x.view())) return x;
  return clone(x);
}

GradTarget::GradTarget(const Tensor& accumulator, const Shape& shape, const Tensor& like) {
  accumulate = accumulator.defined() && accumulator.dtype() == like.dtype() &&
               (accumulator.is_contiguous() ||
                (accumulator.ndim() >= 2 && accumulator.strides().back() == 1 &&
                 accumulator.stride(-2) >= accumulator.shape().back()));
  out = accumulate ? accumulator : Tensor::empty(shape, like.dtype(), like.device());
}

}  // namespace duet
