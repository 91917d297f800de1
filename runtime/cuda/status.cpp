#include <cuda_runtime_api.h>

#include <sstream>

#include "runtime/cuda/cublaslt_library.h"
#include "runtime/cuda_status.h"
#include "runtime/error.h"

namespace duet {
namespace {

std::string version_text(int version) { return concat(version / 1000, '.', version % 1000 / 10); }

std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += concat(text.empty() ? "" : ", ", item);
  return text;
}

std::string words(cudaError_t status) {
  return concat(cudaGetErrorString(status), " (", cudaGetErrorName(status), ')');
}

// The first thing that is missing, or "".
std::string what_is_missing(CudaStatus& s) {
  if (cudaDriverGetVersion(&s.driver) != cudaSuccess) s.driver = 0;
  if (cudaRuntimeGetVersion(&s.runtime) != cudaSuccess) s.runtime = CUDART_VERSION;
  if (s.driver == 0) {
    return concat("no NVIDIA driver was found: got none, expected one for CUDA ",
                  version_text(s.runtime), "; install NVIDIA's driver");
  }
  // A newer minor version of the runtime runs on an older driver.
  cudaError_t status = cudaGetDeviceCount(&s.devices);
  if (s.driver / 1000 < s.runtime / 1000 || status == cudaErrorInsufficientDriver) {
    return concat("the NVIDIA driver is too old: got one for CUDA ", version_text(s.driver),
                  ", expected one for CUDA ", version_text(s.runtime), "; update the driver");
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && s.devices == 0)) {
    return "the driver sees no GPU: got 0, expected 1 or more (CUDA_VISIBLE_DEVICES may hide some)";
  }
  if (status != cudaSuccess) return concat("looking for GPUs: ", words(status));
  cudaDeviceProp properties{};
  status = cudaGetDeviceProperties(&properties, 0);
  if (status != cudaSuccess) return concat("asking for the GPU's properties: ", words(status));
  s.device_name = properties.name;
  s.compute_capability = 10 * properties.major + properties.minor;
  s.multiprocessors = properties.multiProcessorCount;
  s.total_bytes = properties.totalGlobalMem;
  if (!has_code_for(s.architectures, s.compute_capability)) {
    return concat("the binary has no code for this GPU: got sm_", s.compute_capability, " (",
                  s.device_name, "), expected one for ", listed(s.architectures), "; ",
                  build_advice(s.compute_capability, s.runtime));
  }
  status = cudaMemGetInfo(&s.free_bytes, &s.total_bytes);
  if (status != cudaSuccess) return concat("starting the GPU: ", words(status));
  if (cuda::cublaslt_library().create == nullptr) return s.cublaslt;
  return "";
}

}  // namespace

const CudaStatus& cuda_status() {
  static const CudaStatus status = [] {
    CudaStatus s;
    s.built = true;
    std::istringstream list(DUET_CUDA_ARCHITECTURES);  // "80-real,90a-real,120"
    for (std::string item; std::getline(list, item, ',');) s.architectures.push_back(item);
    s.cublaslt = cuda::cublaslt_library().description;
    s.reason = what_is_missing(s);
    s.usable = s.reason.empty();
    cudaGetLastError();  // what failed here must not be blamed on the first launch
    return s;
  }();
  return status;
}

void require_cuda() {
  const CudaStatus& s = cuda_status();
  check(s.usable, ErrorKind::device, "cuda: ", s.reason, "; run with --device cpu");
}

}  // namespace duet
