// The fake cublasLt: what its opaque descriptors hold, and the checks that a product must pass. It
// is built as a library of its own, since the product opens cublasLt while it runs; the rest of the
// simulator it finds in the program.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

namespace sim::blas_lt {

// First word of every object, so that garbage and destroyed ones are told.
enum class Magic : std::uint32_t {
  handle = 0x4c74480a,
  layout = 0x4c744c0a,
  description = 0x4c74440a,
  preference = 0x4c74500a,
  algorithm = 0x4c74410a,
};

struct Handle {
  Magic magic = Magic::handle;
};

struct Layout {
  Magic magic = Magic::layout;
  std::uint32_t type = CUDA_R_32F;  // cudaDataType_t
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::int32_t batch = 1;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  std::int64_t ld = 0;
  std::int64_t stride = 0;  // elements from batch to batch
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

struct Description {
  Magic magic = Magic::description;
  std::int32_t compute = CUBLAS_COMPUTE_32F;
  std::int32_t scale = CUDA_R_32F;
  std::int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  std::int32_t transa = CUBLAS_OP_N;
  std::int32_t transb = CUBLAS_OP_N;
  std::int32_t transc = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  std::int64_t bias_stride = 0;
  void* aux = nullptr;
  std::int64_t aux_ld = 0;
  std::int64_t aux_stride = 0;
  std::int32_t aux_type = -1;   // as D
  std::int32_t bias_type = -1;  // as D
};
static_assert(sizeof(Description) <= sizeof(cublasLtMatmulDescOpaque_t));

struct Preference {
  Magic magic = Magic::preference;
  std::uint32_t search_mode = CUBLASLT_SEARCH_BEST_FIT;
  std::uint64_t workspace = 0;  // at most
  std::uint32_t reduction_mask = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // at least, of A, B, C and D
  float waves = 0;
  std::uint64_t impl_mask = ~std::uint64_t{0};
};
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

// What the heuristic hands out: good for one problem and for pointers aligned as promised.
struct Algorithm {
  Magic magic = Magic::algorithm;
  std::uint32_t alignment[4] = {1, 1, 1, 1};
  std::uint32_t bias_alignment = 1;
  std::uint32_t aux_alignment = 1;
  std::uint64_t problem = 0;    // key() of its problem
  std::uint64_t workspace = 0;  // bytes it needs
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

// The object behind an opaque pointer; fails naming `what` if it is none.
const Layout& layout(cublasLtMatrixLayout_t opaque, const char* what);
const Description& description(cublasLtMatmulDesc_t opaque);
const Preference& preference(cublasLtMatmulPreference_t opaque);
void check_handle(cublasLtHandle_t opaque);

// D = epilogue(alpha op(A) op(B) + beta C): D and C are [m, n], op(A) [m, k], op(B) [k, n].
struct Problem {
  const Description& op;
  const Layout& a;
  const Layout& b;
  const Layout& c;
  const Layout& d;

  std::int64_t m() const { return static_cast<std::int64_t>(d.rows); }
  std::int64_t n() const { return static_cast<std::int64_t>(d.cols); }
  std::int64_t k() const {
    return static_cast<std::int64_t>(op.transa == CUBLAS_OP_N ? a.cols : a.rows);
  }
};

// Fails, naming the rule, unless cublasLt could compute the problem for some pointers.
void check_problem(const Problem& problem);
// The same for two problems that one algorithm may serve: all but the pointers.
std::uint64_t key(const Problem& problem);

// Of a matrix with all its batches.
std::size_t element_bytes(std::uint32_t type);
std::size_t extent_bytes(const Layout& layout);

struct Pointers {
  const void* alpha;
  const void* beta;
  const void* a;
  const void* b;
  const void* c;
  void* d;
  void* workspace;
  std::size_t workspace_bytes;
};
// Fails unless every pointer is device memory of the size and alignment that the problem and the
// algorithm (nullptr: chosen by the call) need, and no output lies on another operand.
void check_pointers(const Problem& problem, const Pointers& pointers, const Algorithm* algorithm);

// Runs the product, on host memory or inside an operation of a stream.
void run(const Description& op, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
         float alpha, float beta, const Pointers& pointers);

}  // namespace sim::blas_lt
