// CudaSource: the memory of the GPU, by cudaMalloc and cudaFree; events tell the allocator when a
// stream is done with a block.
#pragma once

#include <vector>

#include "runtime/allocator.h"

namespace duet {

class CudaSource final : public RawSource {
 public:
  CudaSource();  // throws Error(device) where there is no usable GPU

  void* allocate(std::size_t bytes) noexcept override;  // 256-byte alignment or better
  // The driver waits for the work on the memory before it takes it back.
  void deallocate(void* data, std::size_t bytes) noexcept override;
  bool has_bytes() const noexcept override { return true; }
  SourceLimit limit() const override;
  void fill(void* data, int byte, std::size_t bytes) noexcept override;
  EventId record(StreamId stream) noexcept override;
  bool passed(EventId event) noexcept override;
  void wait(EventId event) noexcept override;

 private:
  std::vector<EventId> spare_;  // events for the next record()
  std::size_t events_ = 0;      // made
};

}  // namespace duet
