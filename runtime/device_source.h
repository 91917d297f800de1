// What a build with CUDA has and one without refuses: runtime/cuda and runtime/cuda_off.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/allocator.h"

namespace duet {

// The memory of the GPU. Throws Error(device) where there is none to use.
std::unique_ptr<RawSource> make_cuda_source();

// `bytes` from one device to another (cpu or cuda; not both cpu), after all work on the compute
// stream. At return the bytes are where they belong if the host takes part. A copy to the host
// throws Error(index) for an id that kernels found out of range (runtime/cuda/error_flag.h).
void copy_bytes(void* to, Device to_device, const void* from, Device from_device,
                std::size_t bytes);

// Waits for all work on the compute stream; an error of an earlier kernel is thrown here, and so is
// an id out of range.
void synchronize_cuda();

}  // namespace duet
