// The fake cublasLt: the heuristic and the product itself.
#include "tests/sim_cuda/blas_lt.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numbers>
#include <vector>

#include "tests/sim_cuda/blas_gemm.h"
#include "tests/sim_cuda/engine.h"
#include "tests/sim_cuda/memory.h"
#include "tests/sim_cuda/runtime.h"
#include "tests/sim_cuda/streams.h"

namespace sim::blas_lt {

namespace {

float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// Rounds to the nearest, ties to even, keeping `bits` low bits of a float at zero.
std::uint32_t round_low_bits(float value, int bits) {
  std::uint32_t wide = 0;
  std::memcpy(&wide, &value, sizeof wide);
  const std::uint32_t low = (std::uint32_t{1} << bits) - 1;
  if (std::isnan(value)) return (wide | (std::uint32_t{1} << 22)) & ~low;
  wide += (low >> 1) + (wide >> bits & 1);
  return wide & ~low;
}

float to_tf32(float value) {
  constexpr int kLostBits = 13;
  const std::uint32_t wide = round_low_bits(value, kLostBits);
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// Elements of one type behind a pointer.
class Elements {
 public:
  Elements(void* data, std::uint32_t type) : data_(data), bf16_(type == CUDA_R_16BF) {}
  float get(std::int64_t i) const {
    return bf16_ ? from_bf16(static_cast<const std::uint16_t*>(data_)[i])
                 : static_cast<const float*>(data_)[i];
  }
  void set(std::int64_t i, float value) const {
    if (bf16_) {
      static_cast<std::uint16_t*>(data_)[i] =
          static_cast<std::uint16_t>(round_low_bits(value, 16) >> 16);
    } else {
      static_cast<float*>(data_)[i] = value;
    }
  }
  const float* floats(std::int64_t i) const { return static_cast<const float*>(data_) + i; }

 private:
  void* data_;
  bool bf16_;
};

Elements elements(const void* data, std::uint32_t type) {
  return {const_cast<void*>(data), type};  // operands that are only read
}

std::int64_t row_stride(const Layout& l) { return l.order == CUBLASLT_ORDER_COL ? 1 : l.ld; }
std::int64_t column_stride(const Layout& l) { return l.order == CUBLASLT_ORDER_COL ? l.ld : 1; }

// One batch of A or B as floats, transposed as the operation says. `storage` keeps converted ones.
Matrix operand(const void* data, const Layout& l, std::int32_t op, std::int64_t batch, bool tf32,
               std::vector<float>& storage) {
  const Elements all = elements(data, l.type);
  Matrix matrix{nullptr, row_stride(l), column_stride(l)};
  if (l.type == CUDA_R_32F && !tf32) {
    matrix.data = all.floats(batch * l.stride);
  } else {
    const auto rows = static_cast<std::int64_t>(l.rows);
    const auto cols = static_cast<std::int64_t>(l.cols);
    storage.resize(l.rows * l.cols);
    for (std::int64_t j = 0; j < cols; ++j) {
      for (std::int64_t i = 0; i < rows; ++i) {
        const float value =
            all.get(batch * l.stride + i * matrix.row_stride + j * matrix.column_stride);
        storage[static_cast<std::size_t>(i + j * rows)] = tf32 ? to_tf32(value) : value;
      }
    }
    matrix = {storage.data(), 1, rows};
  }
  if (op == CUBLAS_OP_T) std::swap(matrix.row_stride, matrix.column_stride);
  return matrix;
}

// cublasLt's GELU is the one with tanh: x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr double kCubic = 0.044715;
const double kSlope = std::sqrt(2.0 / std::numbers::pi);

float gelu(float value) {
  const double x = value;
  return static_cast<float>(0.5 * x * (1 + std::tanh(kSlope * (x + kCubic * x * x * x))));
}

// (1 + t)/2 + x/2 (1 - t^2) u', t = tanh(u)
float gelu_slope(float value) {
  const double x = value;
  const double t = std::tanh(kSlope * (x + kCubic * x * x * x));
  return static_cast<float>(0.5 * (1 + t) +
                            0.5 * x * (1 - t * t) * kSlope * (1 + 3 * kCubic * x * x));
}

bool has(std::uint32_t epilogue, std::uint32_t bits) { return (epilogue & bits) == bits; }

// The operands of an epilogue within one batch.
struct Epilogue {
  std::uint32_t kind;
  Elements bias;
  std::int64_t bias_offset;
  Elements aux;
  std::int64_t aux_offset;
  std::int64_t aux_ld;

  float apply(float x, std::int64_t i, std::int64_t j) const {
    const std::int64_t in_aux = aux_offset + i + j * aux_ld;
    if (has(kind, CUBLASLT_EPILOGUE_DGELU)) return x * gelu_slope(aux.get(in_aux));
    if (has(kind, CUBLASLT_EPILOGUE_BIAS)) x += bias.get(bias_offset + i);
    if (has(kind, CUBLASLT_EPILOGUE_GELU_AUX)) aux.set(in_aux, x);
    if (has(kind, CUBLASLT_EPILOGUE_GELU)) return gelu(x);
    if (has(kind, CUBLASLT_EPILOGUE_RELU)) return x > 0 || std::isnan(x) ? x : 0;
    return x;
  }
};

// bias[i] = sum over l of m(i, l)
void sum_rows(const Matrix& m, std::int64_t rows, std::int64_t columns, const Elements& bias,
              std::int64_t offset) {
  for (std::int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (std::int64_t l = 0; l < columns; ++l) {
      sum += static_cast<double>(m.data[i * m.row_stride + l * m.column_stride]);
    }
    bias.set(offset + i, static_cast<float>(sum));
  }
}

std::uint32_t alignment_of(const void* pointer) {
  constexpr std::uint32_t kMost = 16;  // what vector loads of a vector or of aux can use
  std::uint32_t alignment = kMost;
  while (reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0) alignment /= 2;
  return alignment;
}

// A split of a long inner dimension, as the real library likes it, needs a second copy of D.
std::uint64_t split_workspace(const Problem& p) {
  constexpr std::int64_t kLongInner = 128;
  constexpr std::uint64_t kUnit = 256;
  if (p.k() < kLongInner) return 0;
  const auto elements =
      static_cast<std::uint64_t>(p.m() * p.n()) * static_cast<std::uint64_t>(p.d.batch);
  return (elements * sizeof(float) + kUnit - 1) / kUnit * kUnit;
}

float scalar(const void* at) {
  float value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

void run(const Description& op, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
         float alpha, float beta, const Pointers& at) {
  static std::vector<float> product;  // kept: the operating system's zeroing costs more than a sum
  static std::vector<float> a_storage;
  static std::vector<float> b_storage;
  const Problem p{op, a, b, c, d};
  const std::int64_t m = p.m();
  const std::int64_t n = p.n();
  const std::int64_t k = p.k();
  const bool tf32 = op.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  product.resize(static_cast<std::size_t>(m * n));
  const Elements in = elements(at.c, c.type);
  const Elements out(at.d, d.type);
  for (std::int64_t batch = 0; batch < d.batch; ++batch) {
    const Matrix left = operand(at.a, a, op.transa, batch, tf32, a_storage);
    const Matrix right = operand(at.b, b, op.transb, batch, tf32, b_storage);
    multiply(m, n, k, left, right, product.data());
    const Epilogue epilogue{op.epilogue,
                            Elements(op.bias, d.type),
                            batch * op.bias_stride,
                            Elements(op.aux, d.type),
                            batch * op.aux_stride,
                            op.aux_ld};
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t i = 0; i < m; ++i) {
        float& x = product[static_cast<std::size_t>(i + j * m)];
        x *= alpha;
        if (beta != 0) {
          x += beta * in.get(batch * c.stride + i * row_stride(c) + j * column_stride(c));
        }
        if (op.epilogue != CUBLASLT_EPILOGUE_DEFAULT) x = epilogue.apply(x, i, j);
        out.set(batch * d.stride + i * row_stride(d) + j * column_stride(d), x);
      }
    }
    const Matrix result{product.data(), 1, m};
    if (has(op.epilogue, CUBLASLT_EPILOGUE_DGELU_BGRAD)) {
      sum_rows(result, m, n, epilogue.bias, epilogue.bias_offset);
    } else if (op.epilogue == CUBLASLT_EPILOGUE_BGRADA) {
      sum_rows(left, m, k, epilogue.bias, epilogue.bias_offset);
    } else if (op.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
      const Matrix transposed{right.data, right.column_stride, right.row_stride};
      sum_rows(transposed, n, k, epilogue.bias, epilogue.bias_offset);
    }
  }
}

}  // namespace sim::blas_lt

using namespace sim::blas_lt;

extern "C" {

// Two candidates: one that splits the inner dimension where the workspace allows it, one that needs
// no workspace.
cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference_, int requested,
    cublasLtMatmulHeuristicResult_t results[], int* returned) {
  check_handle(handle);
  const Problem problem{description(op), layout(a, "A"), layout(b, "B"), layout(c, "C"),
                        layout(d, "D")};
  const Preference& wish = preference(preference_);
  if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  check_problem(problem);
  *returned = 0;
  if ((problem.op.epilogue & sim::runtime_options().no_epilogues) != 0) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  Algorithm algorithm;
  std::copy_n(wish.alignment, 4, algorithm.alignment);
  algorithm.bias_alignment = alignment_of(problem.op.bias);
  algorithm.aux_alignment = alignment_of(problem.op.aux);
  algorithm.problem = key(problem);
  int count = 0;
  const auto offer = [&](std::uint64_t workspace) {
    if (count == requested) return;
    algorithm.workspace = workspace;
    cublasLtMatmulHeuristicResult_t& result = results[count++];
    std::memset(&result, 0, sizeof result);
    std::memcpy(&result.algo, &algorithm, sizeof algorithm);
    result.workspaceSize = workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1;
  };
  // Parts of the sum go through the workspace, in one of these ways.
  constexpr std::uint32_t kThroughWorkspace =
      CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  const std::uint64_t split = split_workspace(problem);
  const bool may_split = (wish.reduction_mask & kThroughWorkspace) != 0;
  if (may_split && split > 0 && split <= wish.workspace) offer(split);
  offer(0);
  *returned = count;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t op_,
                                           const void* alpha, const void* a_data,
                                           cublasLtMatrixLayout_t a_, const void* b_data,
                                           cublasLtMatrixLayout_t b_, const void* beta,
                                           const void* c_data, cublasLtMatrixLayout_t c_,
                                           void* d_data, cublasLtMatrixLayout_t d_,
                                           const cublasLtMatmulAlgo_t* algo, void* workspace,
                                           std::size_t workspace_bytes, cudaStream_t stream) {
  const std::lock_guard lock(sim::api_mutex());
  check_handle(handle);
  const Description op = description(op_);
  const Layout a = layout(a_, "A");
  const Layout b = layout(b_, "B");
  const Layout c = layout(c_, "C");
  const Layout d = layout(d_, "D");
  const Problem problem{op, a, b, c, d};
  check_problem(problem);
  Algorithm algorithm;
  if (algo != nullptr) algorithm = *reinterpret_cast<const Algorithm*>(algo);
  const Pointers at{alpha, beta, a_data, b_data, c_data, d_data, workspace, workspace_bytes};
  check_pointers(problem, at, algo == nullptr ? nullptr : &algorithm);
  const std::uint64_t used = algo == nullptr ? 0 : algorithm.workspace;
  const auto product = [=](float alpha_value, float beta_value) {
    if (beta_value != 0 && c_data == nullptr) sim::fail("cublasLtMatmul: C is null, beta is not 0");
    if (used > 0) std::memset(workspace, 0xFF, used);
    run(op, a, b, c, d, alpha_value, beta_value, at);
  };
  if (op.pointer_mode == CUBLASLT_POINTER_MODE_HOST) {
    const float alpha_value = scalar(alpha);
    const float beta_value = scalar(beta);
    sim::enqueue(stream, "cublasLtMatmul", [=] { product(alpha_value, beta_value); });
  } else if (op.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE) {
    sim::require_device(alpha, sizeof(float), "cublasLtMatmul: alpha");
    sim::require_device(beta, sizeof(float), "cublasLtMatmul: beta");
    sim::enqueue(stream, "cublasLtMatmul", [=] { product(scalar(alpha), scalar(beta)); });
  } else {
    sim::fail("cublasLtMatmul: pointer mode %d is not simulated", op.pointer_mode);
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
