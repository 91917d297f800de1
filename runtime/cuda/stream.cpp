#include "runtime/cuda/stream.h"

#include <array>
#include <unordered_map>

#include "runtime/cuda_status.h"
#include "runtime/error.h"
#include "runtime/launch_count.h"
#include "runtime/memory_advice.h"

namespace duet::cuda {
namespace {

constexpr std::size_t kPlainShared = std::size_t{48} << 10;  // what every kernel may have

std::string advice(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return concat(memory_advice().empty() ? "try a smaller batch_size" : memory_advice(),
                    ", or end other programs on this GPU (nvidia-smi lists them)");
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorMisalignedAddress:
      return "an earlier kernel failed: CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer names it";
    case cudaErrorNoKernelImageForDevice:
      return "build with -DCMAKE_CUDA_ARCHITECTURES=native";
    default:
      return "run with --device cpu if it happens again";
  }
}

std::string text(cudaError_t status, const char* what) {
  return concat("cuda: ", what, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status),
                "); ", advice(status));
}

}  // namespace

void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) [[likely]] {
    return;
  }
  cudaGetLastError();  // told now: the next launch must not hear of it
  throw Error(status == cudaErrorMemoryAllocation ? ErrorKind::memory : ErrorKind::device,
              text(status, what));
}

cudaStream_t stream() {
  static cudaStream_t compute = [] {
    require_cuda();
    cudaStream_t made = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "making a stream");
    return made;
  }();
  return compute;
}

cudaStream_t stream_of(StreamId id) {
  if (id == kComputeStream) return stream();
  check(id < kMaxStreams, ErrorKind::internal, "cuda: no such stream: got ", id,
        ", expected less than ", kMaxStreams);
  static std::array<cudaStream_t, kMaxStreams> streams{};
  if (streams[id] == nullptr) {
    require_cuda();
    check_cuda(cudaStreamCreateWithFlags(&streams[id], cudaStreamNonBlocking), "making a stream");
  }
  return streams[id];
}

void prepare_launch(const void* kernel, std::size_t shared_bytes) {
  if (shared_bytes <= kPlainShared) return;
  static std::unordered_map<const void*, std::size_t> allowed;
  std::size_t& bytes = allowed[kernel];
  if (bytes >= shared_bytes) return;
  const auto most = static_cast<int>(shared_bytes);
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
             concat("giving a kernel ", shared_bytes, " bytes of shared memory").c_str());
  bytes = shared_bytes;
}

void finish_launch(const char* kernel) {
  const cudaError_t status = cudaGetLastError();
  check(status == cudaSuccess, ErrorKind::internal, "cuda: launching ", kernel, ": ",
        cudaGetErrorString(status), " (", cudaGetErrorName(status), "); ", advice(status));
  count_launch(kernel);
}

}  // namespace duet::cuda
