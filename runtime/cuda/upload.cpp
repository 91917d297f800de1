#include "runtime/cuda/upload.h"

#include <array>
#include <cstring>

#include "runtime/cuda/stream.h"

namespace duet::cuda {
namespace {

// Pinned memory for one copy at a time.
struct Buffer {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  cudaEvent_t copied = nullptr;  // the last copy from here has run; null: there was none

  // Room for `needed` bytes that no copy reads any more.
  void prepare(std::size_t needed) {
    if (copied != nullptr) check_cuda(cudaEventSynchronize(copied), "waiting for an upload");
    if (bytes >= needed) return;
    if (data != nullptr) check_cuda(cudaFreeHost(data), "giving back pinned memory");
    data = nullptr;
    bytes = 0;
    void* memory = nullptr;
    check_cuda(cudaMallocHost(&memory, needed), "getting pinned memory");
    data = static_cast<std::byte*>(memory);
    bytes = needed;
  }
};

// A step uploads two tables, so that a buffer's turn comes again two steps later.
std::array<Buffer, 4> buffers;
std::size_t next = 0;

}  // namespace

void upload(void* to, std::initializer_list<std::span<const std::byte>> parts) {
  std::size_t bytes = 0;
  for (const auto& part : parts) bytes += part.size();
  if (bytes == 0) return;
  Buffer& buffer = buffers[next++ % buffers.size()];
  buffer.prepare(bytes);
  std::size_t at = 0;
  for (const auto& part : parts) {
    if (part.empty()) continue;
    std::memcpy(buffer.data + at, part.data(), part.size());
    at += part.size();
  }
  check_cuda(cudaMemcpyAsync(to, buffer.data, bytes, cudaMemcpyHostToDevice, stream()),
             "uploading a table");
  if (buffer.copied == nullptr) {
    check_cuda(cudaEventCreateWithFlags(&buffer.copied, cudaEventDisableTiming), "making an event");
  }
  check_cuda(cudaEventRecord(buffer.copied, stream()), "uploading a table");
}

}  // namespace duet::cuda
