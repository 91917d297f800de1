// A build without CUDA.
#include "runtime/cuda_status.h"
#include "runtime/error.h"

namespace duet {

const CudaStatus& cuda_status() {
  static const CudaStatus status = [] {
    CudaStatus s;
    s.reason = "this build has no CUDA";
    s.cublaslt = s.reason;
    return s;
  }();
  return status;
}

void require_cuda() {
  throw Error(ErrorKind::device,
              "cuda: this build has no CUDA; run with --device cpu, or build with -DDUET_CUDA=ON");
}

}  // namespace duet
