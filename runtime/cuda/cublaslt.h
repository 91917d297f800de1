// Matrix products in f32 through cublasLt, in row-major terms. The algorithm is chosen once per
// shape and kept.
//
//   cuda::gemm(a, b, c, {.accumulate = true});   // c += a @ b
//
// Transposes and batches are strides: a transposed operand is a view with its last two swapped.
#pragma once

#include "runtime/view.h"

namespace duet::cuda {

struct GemmOptions {
  bool accumulate = false;      // c += a @ b instead of c = a @ b
  const float* bias = nullptr;  // [N], added to every row; not together with accumulate
  // For try_gemm alone, one of them:
  float* gelu_input = nullptr;  // [M, N], gets h = a @ b + bias; c gets gelu_tanh(h)
  float* row_sums = nullptr;    // [M], gets sum_k a[m, k], beside the product
};

// c = a @ b: [M, K] x [K, N] -> [M, N], or batches [B, M, K] x [B, K, N] -> [B, M, N]; in a and b a
// batch stride 0 broadcasts. Sums are in f32 (no TF32) and the same in every run. Requires: f32, no
// size is 0, c has last stride 1, a and b are gemm operands (is_gemm_operand in
// runtime/cpu/onednn.h: one of the last two strides is 1 and the other does not overlap).
void gemm(const ConstView& a, const ConstView& b, const View& c, const GemmOptions& options = {});

// gemm of two matrices with gelu_input or row_sums, which cublasLt offers for some sizes, addresses
// and GPUs. False, and nothing launched, where it does not: do without. row_sums has no bias,
// gelu_input does not accumulate.
[[nodiscard]] bool try_gemm(const ConstView& a, const ConstView& b, const View& c,
                            const GemmOptions& options);

// Takes the 32 MiB in which cublasLt works, unless they are taken. They are the library's, as what
// oneDNN takes on the cpu, and in no allocator: a plan, which runs no product, equals the run.
// Throws Error(memory).
void take_workspace();

}  // namespace duet::cuda
