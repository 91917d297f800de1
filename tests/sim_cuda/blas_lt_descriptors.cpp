// The fake cublasLt: making, setting and reading descriptors.
#include <cstring>
#include <memory>
#include <type_traits>

#include "tests/sim_cuda/blas_lt.h"
#include "tests/sim_cuda/engine.h"

namespace sim::blas_lt {

namespace {

// An attribute's place inside a descriptor.
struct Field {
  void* data = nullptr;
  std::size_t bytes = 0;
};

template <class T>
Field field(T& member) {
  return {&member, sizeof member};
}

Field field_of(Layout& l, int attribute) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return field(l.type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return field(l.order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return field(l.rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return field(l.cols);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return field(l.ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return field(l.batch);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return field(l.stride);
    default:
      return {};
  }
}

Field field_of(Description& d, int attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return field(d.compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return field(d.scale);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return field(d.pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return field(d.transa);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return field(d.transb);
    case CUBLASLT_MATMUL_DESC_TRANSC:
      return field(d.transc);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return field(d.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return field(d.bias);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return field(d.bias_stride);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return field(d.aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return field(d.aux_ld);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return field(d.aux_stride);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return field(d.aux_type);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return field(d.bias_type);
    default:
      return {};
  }
}

Field field_of(Preference& p, int attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return field(p.search_mode);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return field(p.workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return field(p.reduction_mask);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return field(p.alignment[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return field(p.alignment[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return field(p.alignment[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return field(p.alignment[3]);
    case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT:
      return field(p.waves);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
      return field(p.impl_mask);
    default:
      return {};
  }
}

// Puts `value` where the library's user gave memory, nothing uninitialised behind it.
template <class T, class Opaque>
void place(Opaque* memory, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memset(memory, 0, sizeof *memory);
  std::memcpy(memory, &value, sizeof value);
}

template <class T, class Opaque>
T& object(Opaque* opaque, const char* what) {
  auto* value = reinterpret_cast<T*>(opaque);
  if (value == nullptr || value->magic != T{}.magic) {
    fail("cublasLt: %s is no such descriptor, or was destroyed", what);
  }
  return *value;
}

template <class T, class Opaque>
cublasStatus_t create(Opaque** out, const T& value) {
  *out = std::make_unique<Opaque>().release();
  place(*out, value);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T, class Opaque>
cublasStatus_t init(Opaque* memory, std::size_t bytes, const T& value) {
  if (bytes < sizeof *memory) return CUBLAS_STATUS_ALLOC_FAILED;
  place(memory, value);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T, class Opaque>
cublasStatus_t destroy(Opaque* opaque, const char* what) {
  object<T>(opaque, what).magic = Magic{};
  const std::unique_ptr<Opaque> end(opaque);
  return CUBLAS_STATUS_SUCCESS;
}

Field checked_field(Field f, const char* what, int attribute, const void* buffer,
                    std::size_t bytes) {
  if (f.data == nullptr) fail("cublasLt: attribute %d of a %s is not simulated", attribute, what);
  if (buffer == nullptr || bytes != f.bytes) {
    fail("cublasLt: attribute %d of a %s: got %zu bytes%s, expected %zu", attribute, what, bytes,
         buffer == nullptr ? " at null" : "", f.bytes);
  }
  return f;
}

template <class T, class Opaque>
cublasStatus_t set(Opaque* opaque, const char* what, int attribute, const void* buffer,
                   std::size_t bytes) {
  const Field f =
      checked_field(field_of(object<T>(opaque, what), attribute), what, attribute, buffer, bytes);
  std::memcpy(f.data, buffer, f.bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T, class Opaque>
cublasStatus_t get(Opaque* opaque, const char* what, int attribute, void* buffer, std::size_t bytes,
                   std::size_t* written) {
  const Field asked = field_of(object<T>(opaque, what), attribute);
  if (written != nullptr) *written = asked.bytes;
  if (bytes == 0 && written != nullptr) return CUBLAS_STATUS_SUCCESS;
  const Field f = checked_field(asked, what, attribute, buffer, bytes);
  std::memcpy(buffer, f.data, f.bytes);
  return CUBLAS_STATUS_SUCCESS;
}

Layout make_layout(cudaDataType type, std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  Layout l;
  l.type = static_cast<std::uint32_t>(type);
  l.rows = rows;
  l.cols = cols;
  l.ld = ld;
  return l;
}

Description make_description(cublasComputeType_t compute, cudaDataType_t scale) {
  Description d;
  d.compute = compute;
  d.scale = scale;
  return d;
}

constexpr const char* kLayout = "matrix layout";
constexpr const char* kDescription = "matmul description";
constexpr const char* kPreference = "matmul preference";

}  // namespace

const Layout& layout(cublasLtMatrixLayout_t opaque, const char* what) {
  return object<Layout>(opaque, what);
}
const Description& description(cublasLtMatmulDesc_t opaque) {
  return object<Description>(opaque, kDescription);
}
const Preference& preference(cublasLtMatmulPreference_t opaque) {
  return object<Preference>(opaque, kPreference);
}
void check_handle(cublasLtHandle_t opaque) { object<Handle>(opaque, "the handle"); }

}  // namespace sim::blas_lt

using namespace sim::blas_lt;

extern "C" {

cublasStatus_t CUBLASWINAPI cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(std::make_unique<Handle>().release());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtDestroy(cublasLtHandle_t handle) {
  return destroy<Handle>(reinterpret_cast<Handle*>(handle), "the handle");
}
std::size_t CUBLASWINAPI cublasLtGetVersion() { return CUBLAS_VERSION; }
std::size_t CUBLASWINAPI cublasLtGetCudartVersion() { return CUDART_VERSION; }
const char* CUBLASWINAPI cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS_UNKNOWN";
  }
}
const char* CUBLASWINAPI cublasLtGetStatusString(cublasStatus_t status) {
  return cublasLtGetStatusName(status);
}

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                                       cudaDataType type, std::uint64_t rows,
                                                       std::uint64_t cols, std::int64_t ld) {
  return create(layout, make_layout(type, rows, cols, ld));
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout,
                                                              std::size_t bytes, cudaDataType type,
                                                              std::uint64_t rows,
                                                              std::uint64_t cols, std::int64_t ld) {
  return init(layout, bytes, make_layout(type, rows, cols, ld));
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy<Layout>(layout, kLayout);
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void* buffer,
    std::size_t bytes) {
  return set<Layout>(layout, kLayout, attribute, buffer, bytes);
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutGetAttribute(
    cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, void* buffer,
    std::size_t bytes, std::size_t* written) {
  return get<Layout>(layout, kLayout, attribute, buffer, bytes, written);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                                     cublasComputeType_t compute,
                                                     cudaDataType_t scale) {
  return create(description, make_description(compute, scale));
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t description,
                                                            std::size_t bytes,
                                                            cublasComputeType_t compute,
                                                            cudaDataType_t scale) {
  return init(description, bytes, make_description(compute, scale));
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return destroy<Description>(description, kDescription);
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                                           cublasLtMatmulDescAttributes_t attribute,
                                                           const void* buffer, std::size_t bytes) {
  return set<Description>(description, kDescription, attribute, buffer, bytes);
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t description,
                                                           cublasLtMatmulDescAttributes_t attribute,
                                                           void* buffer, std::size_t bytes,
                                                           std::size_t* written) {
  return get<Description>(description, kDescription, attribute, buffer, bytes, written);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference, Preference{});
}
cublasStatus_t CUBLASWINAPI
cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, std::size_t bytes) {
  return init(preference, bytes, Preference{});
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy<Preference>(preference, kPreference);
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
    const void* buffer, std::size_t bytes) {
  return set<Preference>(preference, kPreference, attribute, buffer, bytes);
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceGetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
    void* buffer, std::size_t bytes, std::size_t* written) {
  return get<Preference>(preference, kPreference, attribute, buffer, bytes, written);
}

}  // extern "C"
