// Matrix products in f32 through oneDNN. Primitives are made once per shape and kept.
//
//   gemm(a, b, c, {.accumulate = true});        // c += a @ b
//
// Transposes and batches are strides: a transposed operand is a view with its last two swapped.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "runtime/view.h"

namespace duet {

struct GemmOptions {
  bool accumulate = false;            // c += a @ b instead of c = a @ b
  const float* bias = nullptr;        // [N], added to every row; not together with accumulate
  std::span<std::byte> scratch = {};  // at least gemm_scratch_bytes(); not aligned
};

// True if gemm() takes the view as an operand: one of its last two dimensions has stride 1 and the
// other does not overlap itself. (Sizes of 1 have no stride to speak of.)
bool is_gemm_operand(const ConstView& x);

// Bytes of scratch that gemm() wants for operands of these sizes and strides, with this processor's
// instruction set and the chosen number of threads. No data is read: the views may lie on meta, and
// a bias need only be there.
std::size_t gemm_scratch_bytes(const ConstView& a, const ConstView& b, const View& c,
                               const GemmOptions& options = {});

// c = a @ b: [*, M, K] x [*, K, N] -> [*, M, N], all with the same number of dimensions. In a and b
// a leading dimension of size 1 or stride 0 broadcasts (not in both). Runs on all threads, or on
// one inside a parallel region. Requires: f32, no size is 0, is_gemm_operand(a, b), c has last
// stride 1. Throws Error(memory) where there is no room for the product's code, Error(internal)
// where the scratch is too small.
void gemm(const ConstView& a, const ConstView& b, const View& c, const GemmOptions& options = {});

std::string onednn_version();  // "2.6.3"
// The kernel that gemm() would use, as oneDNN names it: "gemm:jit", "brg:avx512_core", ... A name
// that begins with "ref" means plain loops: far too slow.
std::string onednn_implementation(const ConstView& a, const ConstView& b, const View& c,
                                  const GemmOptions& options = {});

}  // namespace duet
