// Matrix products behind ops/matmul and ops/linear_cross_entropy. On the cpu f32 by oneDNN, f64 by
// blocked loops; on cuda f32 by cublasLt.
#pragma once

#include <utility>

#include "runtime/kernel_table.h"
#include "runtime/view.h"

namespace duet {

// A matrix, View or ConstView, with its rows as columns.
template <class AnyView>
AnyView transposed(AnyView x) {
  std::swap(x.shape[0], x.shape[1]);
  std::swap(x.strides[0], x.strides[1]);
  return x;
}

struct MatmulKernels {
  // c = a @ b, or c += a @ b. [*, M, K] x [*, K, N] -> [*, M, N], the same number of dimensions in
  // all; in a and b a leading stride 0 broadcasts. Any size may be 0: an inner size 0 gives zeros.
  // Requires: c has last stride 1; for f32 a and b are gemm operands (runtime/cpu/onednn.h). Here
  // and below, `scratch` is what gemm_scratch.h gives for the product.
  void (*gemm)(ConstView a, ConstView b, View c, bool accumulate, View scratch);
  // y = x @ weight^T + bias: [N, In], [Out, In], [Out] -> [N, Out]. Without bias: its data is null.
  void (*linear)(ConstView x, ConstView weight, ConstView bias, View y, View scratch);
  // dw = or += dy^T @ x, db = or += the sum of dy over rows: [N, Out], [N, In] -> [Out, In], [Out].
  // The data of dw or db is null where it is not wanted. dw as c of gemm, db contiguous.
  void (*weight_gradient)(ConstView dy, ConstView x, View dw, View db, bool accumulate_dw,
                          bool accumulate_db, View scratch);
  // h = x @ weight^T + bias as in linear, y = gelu_tanh(h), both contiguous.
  void (*linear_gelu_tanh)(ConstView x, ConstView weight, ConstView bias, View h, View y,
                           View scratch);
};

extern const MatmulKernels matmul_cpu;
extern const MatmulKernels matmul_cuda;
inline constexpr KernelTable<MatmulKernels> matmul_kernels{"matmul", &matmul_cpu,
                                                           DUET_CUDA_TABLE(matmul_cuda)};

}  // namespace duet
