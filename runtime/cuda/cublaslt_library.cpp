#include "runtime/cuda/cublaslt_library.h"

#include <dlfcn.h>

#include "runtime/error.h"

// The simulator's functions are linked into the program; the library's are looked up in it.
#if DUET_SIM_CUDA
#define FIND(to, function) (to) = &(function)
#else
#define FIND(to, function) find(library, #function, to, missing)
#endif

namespace duet::cuda {
namespace {

// The library's major version is part of its name.
constexpr int kMajor = CUBLAS_VER_MAJOR;

template <class Function>
void find(void* library, const char* name, Function*& to, std::string& missing) {
  to = reinterpret_cast<Function*>(::dlsym(library, name));
  if (to == nullptr && missing.empty()) missing = name;
}

CublasLtLibrary functions_of([[maybe_unused]] void* library) {
  CublasLtLibrary lt;
  std::string missing;
  FIND(lt.create, cublasLtCreate);
  FIND(lt.get_version, cublasLtGetVersion);
  FIND(lt.get_status_string, cublasLtGetStatusString);
  FIND(lt.matmul, cublasLtMatmul);
  FIND(lt.get_heuristic, cublasLtMatmulAlgoGetHeuristic);
  FIND(lt.create_matmul, cublasLtMatmulDescCreate);
  FIND(lt.destroy_matmul, cublasLtMatmulDescDestroy);
  FIND(lt.set_matmul, cublasLtMatmulDescSetAttribute);
  FIND(lt.create_layout, cublasLtMatrixLayoutCreate);
  FIND(lt.destroy_layout, cublasLtMatrixLayoutDestroy);
  FIND(lt.set_layout, cublasLtMatrixLayoutSetAttribute);
  FIND(lt.create_preference, cublasLtMatmulPreferenceCreate);
  FIND(lt.destroy_preference, cublasLtMatmulPreferenceDestroy);
  FIND(lt.set_preference, cublasLtMatmulPreferenceSetAttribute);
  if (!missing.empty()) {
    lt = {};
    lt.description =
        concat("cublasLt has no function ", missing, ": got another version, expected ",
               CUBLAS_VER_MAJOR, '.', CUBLAS_VER_MINOR);
    return lt;
  }
  const std::size_t version = lt.get_version();  // 130002 for 13.0.2
  lt.description = concat(version / 10000, '.', version / 100 % 100, '.', version % 100);
  return lt;
}

CublasLtLibrary open() {
  void* library = nullptr;
#if !DUET_SIM_CUDA
  const std::string name = concat("libcublasLt.so.", kMajor);
  library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    CublasLtLibrary none;
    const char* const words = ::dlerror();
    none.description =
        concat("cublasLt cannot be opened: ", words == nullptr ? name.c_str() : words,
               " (install cuBLAS of CUDA ", kMajor, ", or name its folder in LD_LIBRARY_PATH)");
    return none;
  }
#endif
  return functions_of(library);
}

}  // namespace

const CublasLtLibrary& cublaslt_library() {
  static const CublasLtLibrary library = open();
  return library;
}

}  // namespace duet::cuda
