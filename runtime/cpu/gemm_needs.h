// Memory that oneDNN's products take beside the scratch that an op gives them: packed copies of
// their operands, and generated code.
//
//   forget_gemm_needs();
//   ... gemm_scratch_bytes() of every product that is planned ...
//   gemm_needs().packed;
#pragma once

#include <cstddef>

namespace duet {

struct GemmNeeds {
  std::size_t packed = 0;     // of the product with the largest copies; at most
  std::size_t padded = 0;     // our own copies of operands, which stay
  std::size_t code = 0;       // of all products: what is written of it
  std::size_t code_room = 0;  // of all products: what is asked for
};

// The needs of the products whose scratch was asked for on this thread since forget_gemm_needs().
const GemmNeeds& gemm_needs();
void forget_gemm_needs();

namespace detail {
// A product [m, k] x [k, n] joins. `packs`: oneDNN copies its operands; `padded_bytes`: of our own
// copies. Its code counts once, however often it joins.
struct PlannedProduct {
  const void* identity;
  std::size_t m, n, k;
  bool packs;
  std::size_t padded_bytes, code, code_room;
};
void count_gemm_needs(const PlannedProduct& product);
}  // namespace detail

}  // namespace duet
