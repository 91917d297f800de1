// The compute stream of the process, and checked calls of the CUDA runtime. For .cu files and
// runtime/cuda alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "runtime/allocator.h"

namespace duet::cuda {

// Every kernel, copy and product of the process runs here, in order. Made at its first use; throws
// Error(device) where there is no usable GPU.
cudaStream_t stream();
// The stream that runtime/allocator.h gives this number: kComputeStream is stream(), others are
// made at their first use.
cudaStream_t stream_of(StreamId id);

// Throws Error(memory) for an exhausted device, else Error(device), with what was tried and CUDA's
// own words.
void check_cuda(cudaError_t status, const char* what);

// Around every launch: lets the kernel have more shared memory than 48 KiB; throws Error(internal)
// with the kernel's name if the launch was refused; counts it (runtime/launch_count.h).
void prepare_launch(const void* kernel, std::size_t shared_bytes);
void finish_launch(const char* kernel);

}  // namespace duet::cuda
