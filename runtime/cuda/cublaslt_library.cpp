#include "runtime/cuda/cublaslt_library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "runtime/error.h"

namespace duet::cuda {
namespace {

// The library's major version is part of its name.
constexpr int kMajor = CUBLAS_VER_MAJOR;

CublasLtLibrary functions_of(void* library) {
  CublasLtLibrary lt;
  std::string missing;
  const auto find = [&]<class Function>(Function*& to, const char* name) {
    to = reinterpret_cast<Function*>(::dlsym(library, name));
    if (to == nullptr && missing.empty()) missing = name;
  };
  find(lt.create, "cublasLtCreate");
  find(lt.get_version, "cublasLtGetVersion");
  find(lt.get_status_string, "cublasLtGetStatusString");
  find(lt.matmul, "cublasLtMatmul");
  find(lt.get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(lt.create_matmul, "cublasLtMatmulDescCreate");
  find(lt.destroy_matmul, "cublasLtMatmulDescDestroy");
  find(lt.set_matmul, "cublasLtMatmulDescSetAttribute");
  find(lt.create_layout, "cublasLtMatrixLayoutCreate");
  find(lt.destroy_layout, "cublasLtMatrixLayoutDestroy");
  find(lt.set_layout, "cublasLtMatrixLayoutSetAttribute");
  find(lt.create_preference, "cublasLtMatmulPreferenceCreate");
  find(lt.destroy_preference, "cublasLtMatmulPreferenceDestroy");
  find(lt.set_preference, "cublasLtMatmulPreferenceSetAttribute");
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
  // DUET_CUBLASLT names another one, where several are installed.
  const char* const chosen = std::getenv("DUET_CUBLASLT");
  const std::string name = chosen != nullptr ? chosen : concat("libcublasLt.so.", kMajor);
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    CublasLtLibrary none;
    const char* const words = ::dlerror();
    none.description =
        concat("cublasLt cannot be opened: ", words == nullptr ? name.c_str() : words,
               " (install cuBLAS of CUDA ", kMajor,
               ", or name its folder in LD_LIBRARY_PATH, or the file in DUET_CUBLASLT)");
    return none;
  }
  return functions_of(library);
}

}  // namespace

const CublasLtLibrary& cublaslt_library() {
  static const CublasLtLibrary library = open();
  return library;
}

}  // namespace duet::cuda
