#include "runtime/cuda/cublaslt.h"

#include <algorithm>
#include <array>
#include <memory>
#include <type_traits>
#include <unordered_map>

#include "runtime/cuda/cublaslt_library.h"
#include "runtime/cuda/stream.h"
#include "runtime/error.h"
#include "runtime/launch_count.h"

namespace duet::cuda {
namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // what NVIDIA advises for sm_90
constexpr std::size_t kMaxPlans = 1024;
// cublasLt counts batches in int, and the grids of its kernels end before that.
constexpr std::int64_t kMaxBatch = 1 << 15;

const CublasLtLibrary& lt() { return cublaslt_library(); }

// What a row-major product is to cublasLt, which thinks in columns: c^T = b^T a^T. A matrix is
// given by its stored columns: `lead` elements from one to the next, `rows` in each.
struct Stored {
  bool transposed = false;  // stored columns are columns of the row-major matrix
  std::int64_t rows = 0, columns = 0, lead = 0, batch_step = 0;
};

Stored stored_of(const ConstView& x) {
  const std::int64_t rows = x.size(-2);
  const std::int64_t columns = x.size(-1);
  Stored s;
  s.batch_step = x.ndim() == 3 ? x.stride(0) : 0;
  // The stride of a size 1 says nothing.
  const std::int64_t row_step = rows == 1 ? columns : x.stride(-2);
  const std::int64_t column_step = columns == 1 ? rows : x.stride(-1);
  s.transposed = !((columns == 1 || x.stride(-1) == 1) && row_step >= columns);
  check(!s.transposed || ((rows == 1 || x.stride(-2) == 1) && column_step >= rows),
        ErrorKind::internal, "gemm: not an operand: got ", x.shape, " with strides ", x.strides,
        ", expected one of the last two to be 1; copy it first");
  s.rows = s.transposed ? rows : columns;
  s.columns = s.transposed ? columns : rows;
  s.lead = s.transposed ? column_step : row_step;
  return s;
}

// What cublasLt does with a product before it writes it.
std::uint32_t epilogue_of(const GemmOptions& options) {
  // The row-major a is cublasLt's B, whose sums over k it writes as the gradient of a bias.
  if (options.row_sums != nullptr) return CUBLASLT_EPILOGUE_BGRADB;
  if (options.gelu_input != nullptr) {
    return options.bias != nullptr ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  }
  return options.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

// The vector that goes with the epilogue, read or written.
const float* epilogue_vector(const GemmOptions& options) {
  return options.row_sums != nullptr ? options.row_sums : options.bias;
}

// The alignment, in bytes, that every batch of a matrix has: a power of 2 up to 256.
std::int64_t alignment(const void* data, std::int64_t batch_step) {
  const auto bits = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data)) |
                    batch_step * static_cast<std::int64_t>(sizeof(float)) | 256;
  return bits & -bits;
}

struct Product {
  Stored a, b, c;  // as cublasLt has them: its a is our b
  const void* a_data = nullptr;
  const void* b_data = nullptr;
  void* c_data = nullptr;
  std::int64_t batch = 1;
  GemmOptions options;

  // What makes two products the same plan.
  using Key = std::array<std::int64_t, 22>;
  Key key() const {
    return {a.rows,
            a.columns,
            a.lead,
            a.batch_step,
            a.transposed,
            b.rows,
            b.columns,
            b.lead,
            b.batch_step,
            b.transposed,
            c.rows,
            c.columns,
            c.lead,
            c.batch_step,
            batch,
            options.accumulate,
            epilogue_of(options),
            alignment(a_data, a.batch_step),
            alignment(b_data, b.batch_step),
            alignment(c_data, c.batch_step),
            alignment(epilogue_vector(options), 0),
            alignment(options.gelu_input, 0)};
  }
  std::string shapes() const {  // row-major, for messages
    const Shape left{batch, c.columns, b.transposed ? b.columns : b.rows};
    const Shape right{batch, a.transposed ? a.rows : a.columns, c.rows};
    return concat(left, " x ", right);
  }
};

struct KeyHash {
  std::size_t operator()(const Product::Key& key) const {
    std::uint64_t h = 0;
    for (const std::int64_t w : key) {
      h = (h ^ static_cast<std::uint64_t>(w)) * 0x9E3779B97F4A7C15U;
      h ^= h >> 29;
    }
    return h;
  }
};

void check_lt(cublasStatus_t status, const Product& p, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]] {
    return;
  }
  const bool memory = status == CUBLAS_STATUS_ALLOC_FAILED;
  throw Error(
      memory ? ErrorKind::memory : ErrorKind::internal,
      concat("gemm: cublasLt ", lt().description, ", ", what, ' ', p.shapes(), ": ",
             lt().get_status_string(status),
             memory ? "; end other programs on this GPU (nvidia-smi lists them), or run with "
                      "--device cpu"
                    : "; run with --device cpu"));
}

// A descriptor of cublasLt, given back at the end.
template <class Handle>
struct Owned {
  std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)> handle;

  template <class Create, class... Args>
  Owned(cublasStatus_t (*destroy)(Handle), const Product& p, Create create, Args... args)
      : handle(nullptr, destroy) {
    Handle made = nullptr;
    check_lt(create(&made, args...), p, "describing");
    handle.reset(made);
  }
  Handle get() const { return handle.get(); }
};

template <class Handle, class Attribute, class Value>
void set(cublasStatus_t (*setter)(Handle, Attribute, const void*, std::size_t), Handle handle,
         std::type_identity_t<Attribute> attribute, const Value& value, const Product& p) {
  check_lt(setter(handle, attribute, &value, sizeof value), p, "describing");
}

Owned<cublasLtMatrixLayout_t> layout_of(const Stored& s, const Product& p) {
  Owned<cublasLtMatrixLayout_t> layout(lt().destroy_layout, p, lt().create_layout, CUDA_R_32F,
                                       static_cast<std::uint64_t>(s.rows),
                                       static_cast<std::uint64_t>(s.columns), s.lead);
  const auto count = static_cast<std::int32_t>(p.batch);
  set(lt().set_layout, layout.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count, p);
  set(lt().set_layout, layout.get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, s.batch_step, p);
  return layout;
}

// Made at the first product, of any number of threads that launch there is one.
cublasLtHandle_t handle_for(const Product& p) {
  static cublasLtHandle_t handle = [&] {
    stream();  // says what is missing
    cublasLtHandle_t made = nullptr;
    check_lt(lt().create(&made), p, "starting for");
    return made;
  }();
  return handle;
}

// One for the process, because products run one after another. Never given back.
void* workspace() {
  static void* const bytes = [] {
    void* made = nullptr;
    if (cudaMalloc(&made, kWorkspace) != cudaSuccess) {
      cudaGetLastError();  // told below
      std::size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      throw Error(ErrorKind::memory, concat("cuda: the work space of cublasLt does not fit: got ",
                                            free >> 10, " KiB free of the GPU's ", total >> 10,
                                            " KiB, expected ", kWorkspace >> 10,
                                            " KiB; end other programs on this GPU (nvidia-smi "
                                            "lists them), or run with --device cpu"));
    }
    return made;
  }();
  return bytes;
}

constexpr const char* kChoosing = "choosing an algorithm for";

struct Plan {
  Owned<cublasLtMatmulDesc_t> matmul;
  Owned<cublasLtMatrixLayout_t> a, b, c;
  cublasStatus_t chosen = CUBLAS_STATUS_NOT_SUPPORTED;  // or success: there is an algorithm
  cublasLtMatmulAlgo_t algorithm{};

  explicit Plan(const Product& p)
      : matmul(lt().destroy_matmul, p, lt().create_matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        a(layout_of(p.a, p)),
        b(layout_of(p.b, p)),
        c(layout_of(p.c, p)) {
    const auto operation = [](bool t) -> std::int32_t { return t ? CUBLAS_OP_T : CUBLAS_OP_N; };
    set(lt().set_matmul, matmul.get(), CUBLASLT_MATMUL_DESC_TRANSA, operation(p.a.transposed), p);
    set(lt().set_matmul, matmul.get(), CUBLASLT_MATMUL_DESC_TRANSB, operation(p.b.transposed), p);
    set(lt().set_matmul, matmul.get(), CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p.options), p);
    if (p.options.gelu_input != nullptr) {  // lies without gaps
      set(lt().set_matmul, matmul.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.c.rows, p);
    }
    set_pointers(p);
    choose_algorithm(p);
  }

  // What the epilogue reads and writes, of this product.
  void set_pointers(const Product& p) {
    if (const float* const vector = epilogue_vector(p.options); vector != nullptr) {
      set(lt().set_matmul, matmul.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector, p);
    }
    if (float* const aux = p.options.gelu_input; aux != nullptr) {
      set(lt().set_matmul, matmul.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux, p);
    }
  }

  void choose_algorithm(const Product& p) {
    const Owned<cublasLtMatmulPreference_t> preference(lt().destroy_preference, p,
                                                       lt().create_preference);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      set(lt().set_preference, preference.get(), attribute, value, p);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkspace));
    // Parts of K may be summed in any order in place; through the workspace the order is fixed.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
                                      CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE));
    const auto align = [](const void* data, const Stored& s) {
      return static_cast<std::uint32_t>(alignment(data, s.batch_step));
    };
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align(p.a_data, p.a));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align(p.b_data, p.b));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align(p.c_data, p.c));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align(p.c_data, p.c));
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status =
        lt().get_heuristic(handle_for(p), matmul.get(), a.get(), b.get(), c.get(), c.get(),
                           preference.get(), 1, &best, &found);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check_lt(status, p, kChoosing);
    if (status == CUBLAS_STATUS_SUCCESS && found > 0) chosen = best.state;
    algorithm = best.algo;
  }
};

// More shapes than a model has means that shapes keep changing: then the choices start over.
Plan& plan_for(const Product& p) {
  static std::unordered_map<Product::Key, Plan, KeyHash>& plans =
      *std::make_unique<std::unordered_map<Product::Key, Plan, KeyHash>>().release();
  const Product::Key key = p.key();
  if (const auto found = plans.find(key); found != plans.end()) return found->second;
  if (plans.size() >= kMaxPlans) plans.clear();
  return plans.emplace(key, Plan(p)).first->second;
}

void run(const Product& p, Plan& plan) {
  cublasLtHandle_t handle = handle_for(p);
  plan.set_pointers(p);
  const float alpha = 1;
  const float beta = p.options.accumulate ? 1 : 0;
  check_lt(lt().matmul(handle, plan.matmul.get(), &alpha, p.a_data, plan.a.get(), p.b_data,
                       plan.b.get(), &beta, p.c_data, plan.c.get(), p.c_data, plan.c.get(),
                       &plan.algorithm, workspace(), kWorkspace, stream()),
           p, "multiplying");
  count_launch("cublaslt_gemm");
}

Product product_of(const ConstView& a, const ConstView& b, const View& c,
                   const GemmOptions& options) {
  Product p;
  p.a_data = b.data;
  p.b_data = a.data;
  p.c_data = c.data;
  p.a = stored_of(b);
  p.b = stored_of(a);
  p.c = stored_of(c);
  check(!p.c.transposed, ErrorKind::internal, "gemm: c lies in columns: got ", c.shape,
        " with strides ", c.strides, ", expected last stride 1");
  p.options = options;
  return p;
}

}  // namespace

void gemm(const ConstView& a, const ConstView& b, const View& c, const GemmOptions& options) {
  Product p = product_of(a, b, c, options);
  const std::int64_t batches = c.ndim() == 3 ? c.size(0) : 1;
  for (std::int64_t first = 0; first < batches; first += kMaxBatch) {
    p.batch = std::min(kMaxBatch, batches - first);
    p.a_data = b.as<float>() + first * p.a.batch_step;
    p.b_data = a.as<float>() + first * p.b.batch_step;
    p.c_data = c.as<float>() + first * p.c.batch_step;
    Plan& plan = plan_for(p);
    check_lt(plan.chosen, p, kChoosing);
    run(p, plan);
  }
}

bool try_gemm(const ConstView& a, const ConstView& b, const View& c, const GemmOptions& options) {
  const auto whole_vectors = [](const float* data) { return alignment(data, 0) >= 16; };
  // What cublasLt asks of a matrix that an epilogue writes: 16 bytes, columns 8 elements apart.
  const bool fits =
      options.gelu_input == nullptr || (c.size(-1) % 8 == 0 && whole_vectors(options.gelu_input));
  if (!fits || !whole_vectors(epilogue_vector(options))) return false;
  const Product p = product_of(a, b, c, options);
  Plan& plan = plan_for(p);
  if (plan.chosen != CUBLAS_STATUS_SUCCESS) return false;
  run(p, plan);
  return true;
}

void take_workspace() {
  stream();  // says what is missing
  workspace();
}

}  // namespace duet::cuda
