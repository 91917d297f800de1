// cublasLt's functions, found when the program runs: a build for CUDA starts where the library is
// missing.
#pragma once

#include <cublasLt.h>

#include <string>

namespace duet::cuda {

struct CublasLtLibrary {
  decltype(&cublasLtCreate) create = nullptr;  // null: the library cannot be used
  decltype(&cublasLtGetVersion) get_version = nullptr;
  decltype(&cublasLtGetStatusString) get_status_string = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_matmul = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_matmul = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_matmul = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  std::string description;  // "13.0.2", or why it cannot be used
};

// Looks once, at the first call.
const CublasLtLibrary& cublaslt_library();

}  // namespace duet::cuda
