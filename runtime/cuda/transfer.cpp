// Bytes between the host and the GPU.
#include <cuda_runtime_api.h>

#include "runtime/cuda/error_flag.h"
#include "runtime/cuda/stream.h"
#include "runtime/device_source.h"
#include "runtime/error.h"

namespace duet {

void copy_bytes(void* to, Device to_device, const void* from, Device from_device,
                std::size_t bytes) {
  if (bytes == 0) return;
  const bool to_host = to_device.type == DeviceType::cpu;
  const bool from_host = from_device.type == DeviceType::cpu;
  const cudaMemcpyKind kind = to_host     ? cudaMemcpyDeviceToHost
                              : from_host ? cudaMemcpyHostToDevice
                                          : cudaMemcpyDeviceToDevice;
  const char* const what = to_host     ? "copying from the GPU"
                           : from_host ? "copying to the GPU"
                                       : "copying on the GPU";
  cuda::check_cuda(cudaMemcpyAsync(to, from, bytes, kind, cuda::stream()), what);
  // The host's memory may be freed or written at once.
  if (to_host || from_host) cuda::check_cuda(cudaStreamSynchronize(cuda::stream()), what);
  if (to_host) cuda::check_error_flag();
}

void synchronize_cuda() {
  cuda::check_cuda(cudaStreamSynchronize(cuda::stream()), "waiting for the GPU");
  cuda::check_error_flag();
}

}  // namespace duet
