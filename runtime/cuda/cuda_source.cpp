#include "runtime/cuda/cuda_source.h"

#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/stream.h"
#include "runtime/cuda_status.h"
#include "runtime/device_source.h"

namespace duet {
namespace {

// An EventId is the address that CUDA gave.
cudaEvent_t event_of(EventId id) {
  return reinterpret_cast<cudaEvent_t>(id);  // NOLINT(performance-no-int-to-ptr)
}

// What fails here says so again at the next checked call; these functions must not throw.
void forget_error() noexcept { cudaGetLastError(); }

}  // namespace

// The work space of products goes first: what is free afterwards is free for tensors.
CudaSource::CudaSource() { cuda::take_workspace(); }

void* CudaSource::allocate(std::size_t bytes) noexcept {
  void* data = nullptr;
  if (cudaMalloc(&data, bytes) == cudaSuccess) return data;
  forget_error();  // out of memory is the allocator's to tell
  return nullptr;
}

void CudaSource::deallocate(void* data, std::size_t) noexcept {
  if (cudaFree(data) != cudaSuccess) forget_error();
}

SourceLimit CudaSource::limit() const {
  std::size_t total = 0, free = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
    forget_error();
    return {};
  }
  return {"of the GPU", total, free};
}

void CudaSource::fill(void* data, int byte, std::size_t bytes) noexcept {
  if (cudaMemsetAsync(data, byte, bytes, cuda::stream()) != cudaSuccess) forget_error();
}

EventId CudaSource::record(StreamId stream) noexcept {
  try {
    cudaEvent_t event = nullptr;
    if (spare_.empty()) {
      cuda::check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
      spare_.reserve(++events_);  // so that giving it back needs no memory
    } else {
      event = event_of(spare_.back());
      spare_.pop_back();
    }
    cuda::check_cuda(cudaEventRecord(event, cuda::stream_of(stream)), "recording an event");
    return reinterpret_cast<EventId>(event);
  } catch (...) {
    cudaDeviceSynchronize();  // no event, so wait at once
    forget_error();
    return 0;
  }
}

bool CudaSource::passed(EventId event) noexcept {
  if (cudaEventQuery(event_of(event)) == cudaErrorNotReady) {
    forget_error();
    return false;
  }
  spare_.push_back(event);
  return true;
}

void CudaSource::wait(EventId event) noexcept {
  if (cudaEventSynchronize(event_of(event)) != cudaSuccess) forget_error();
  spare_.push_back(event);
}

std::unique_ptr<RawSource> make_cuda_source() { return std::make_unique<CudaSource>(); }

}  // namespace duet
