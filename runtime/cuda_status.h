// What there is of CUDA in this build and on this machine. Asking starts CUDA, so that nothing that
// runs on the cpu alone asks.
//
//   require_cuda();   // throws Error(device): what is missing; run with --device cpu
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace duet {

struct CudaStatus {
  bool built = false;   // with DUET_CUDA=ON or SIM
  bool usable = false;  // everything is there: kernels can run
  std::string reason;   // why not: "the NVIDIA driver is too old: got one for CUDA 12.4, ..."
  int driver = 0;       // the CUDA version that the driver is for, as 13000 for 13.0; 0 without one
  int runtime = 0;      // the version that the binary was built with
  std::vector<std::string> architectures;  // of the binary, as CMake spells them: "90a-real"
  int devices = 0;
  std::string device_name;     // of device 0, the one that is used
  int compute_capability = 0;  // of it, 90 for 9.0
  int multiprocessors = 0;
  std::size_t total_bytes = 0, free_bytes = 0;  // of it, when it was asked
  std::string cublaslt;                         // its version, or why it cannot be used
};

// Looks once, at the first call.
const CudaStatus& cuda_status();

// Throws Error(device) with the reason unless the GPU is usable.
void require_cuda();

// Whether a binary with these architectures has code for a device of this compute capability.
// "90a" is for 9.0 alone, "80" for 8.0 and above within 8, "100f" likewise; PTX (without "-real")
// for every later one.
bool has_code_for(const std::vector<std::string>& architectures, int compute_capability);

// What to do where it has none: "build with -DCMAKE_CUDA_ARCHITECTURES=86"; or that this toolkit
// (13000 for CUDA 13.0) no longer compiles for so old a GPU, and which one does.
std::string build_advice(int compute_capability, int toolkit);

}  // namespace duet
