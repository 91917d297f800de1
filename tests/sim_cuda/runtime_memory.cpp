// The fake CUDA runtime: device and pinned memory, copies and fills. A copy from pinned memory
// reads it when the stream gets there; one to the host leaves NaN until then.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "tests/sim_cuda/engine.h"
#include "tests/sim_cuda/memory.h"
#include "tests/sim_cuda/runtime.h"
#include "tests/sim_cuda/runtime_calls.h"
#include "tests/sim_cuda/streams.h"

namespace sim {

namespace {

// Start and bytes of pinned host memory.
std::map<std::uintptr_t, std::size_t>& pinned() {
  using Map = std::map<std::uintptr_t, std::size_t>;
  static Map& map = *std::make_unique<Map>().release();  // outlives static destructors
  return map;
}

bool is_pinned(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  auto after = pinned().upper_bound(address);
  if (after == pinned().begin()) return false;
  --after;
  return address < after->first + after->second;
}

const char* place(bool device) { return device ? "device" : "host"; }

// Whether both ends are on the device, as `kind` says; fails where the pointers differ from it.
void check_ends(const char* call, const void* to, const void* from, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (is_device(to) != to_device || is_device(from) != from_device) {
    fail("%s: kind says %s to %s, the pointers are %s to %s", call, place(from_device),
         place(to_device), place(is_device(from)), place(is_device(to)));
  }
}

void copy(const char* call, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
          cudaStream_t stream) {
  if (bytes == 0) return;
  check_ends(call, to, from, kind);
  const bool to_device = is_device(to);
  const bool from_device = is_device(from);
  if (to_device) require_device(to, bytes, call);
  if (from_device) require_device(from, bytes, call);
  if (to_device && from_device) {
    const auto* target = static_cast<const char*>(to);
    const auto* source = static_cast<const char*>(from);
    if (target < source + bytes && source < target + bytes) {
      fail("%s: source and destination overlap", call);
    }
    enqueue(stream, "copy on the device", [=] { std::memcpy(to, from, bytes); });
  } else if (from_device) {
    std::memset(to, 0xFF, bytes);
    enqueue(stream, "copy to the host", [=] { std::memcpy(to, from, bytes); });
  } else if (!to_device || is_pinned(from)) {
    enqueue(stream, "copy from pinned memory", [=] { std::memcpy(to, from, bytes); });
  } else {
    const auto* source = static_cast<const char*>(from);
    auto staged = std::make_shared<std::vector<char>>(source, source + bytes);
    enqueue(stream, "copy from the host", [=] { std::memcpy(to, staged->data(), bytes); });
  }
}

void fill(const char* call, void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return;
  require_device(to, bytes, call);
  enqueue(stream, "memset", [=] { std::memset(to, value, bytes); });
}

cudaError_t allocate_pinned(void** pointer, std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  *pointer = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  if (*pointer == nullptr) return cudaErrorMemoryAllocation;
  pinned().emplace(reinterpret_cast<std::uintptr_t>(*pointer), bytes);
  return cudaSuccess;
}

void free_pinned(void* pointer) {
  if (pointer == nullptr) return;
  synchronize_all();
  if (pinned().erase(reinterpret_cast<std::uintptr_t>(pointer)) == 0) {
    fail("cudaFreeHost: %p is not pinned memory, or was freed before", pointer);
  }
  std::free(pointer);
}

}  // namespace

void require_device_argument(const void* pointer, const char* kernel) {
  if (pointer == nullptr || is_pinned(pointer)) return;
  const Allocation* a = find_allocation(pointer);
  // One past the end is no error: an empty view may point there.
  if (a == nullptr && !is_device(pointer)) {
    fail("%s gets the host address %p, which a GPU cannot read", kernel, pointer);
  }
  if (a != nullptr && !a->live) {
    fail("%s: use after free: gets freed allocation #%d (%zu bytes)", kernel, a->number, a->bytes);
  }
}

}  // namespace sim

using sim::do_on_device;
using sim::on_device;

extern "C" {

cudaError_t CUDARTAPI cudaMalloc(void** pointer, std::size_t bytes) {
  return on_device([&] {
    *pointer = bytes == 0 ? nullptr : sim::allocate_device(bytes);
    return *pointer == nullptr && bytes != 0 ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}
cudaError_t CUDARTAPI cudaFree(void* pointer) {
  return do_on_device([&] {
    if (pointer == nullptr) return;
    sim::synchronize_all();  // as CUDA's does
    sim::free_device(pointer);
  });
}
cudaError_t CUDARTAPI cudaMallocHost(void** pointer, std::size_t bytes) {
  return on_device([&] { return sim::allocate_pinned(pointer, bytes); });
}
cudaError_t CUDARTAPI cudaHostAlloc(void** pointer, std::size_t bytes, unsigned /*flags*/) {
  return on_device([&] { return sim::allocate_pinned(pointer, bytes); });
}
cudaError_t CUDARTAPI cudaFreeHost(void* pointer) {
  return do_on_device([&] { sim::free_pinned(pointer); });
}
cudaError_t CUDARTAPI cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total) {
  return do_on_device([&] {
    *total = sim::runtime_options().memory;
    *free_bytes = *total - sim::live_bytes();
  });
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                                      cudaMemcpyKind kind, cudaStream_t stream) {
  return do_on_device([&] { sim::copy("cudaMemcpyAsync", to, from, bytes, kind, stream); });
}
cudaError_t CUDARTAPI cudaMemcpy(void* to, const void* from, std::size_t bytes,
                                 cudaMemcpyKind kind) {
  return do_on_device([&] {
    sim::copy("cudaMemcpy", to, from, bytes, kind, nullptr);
    sim::synchronize(nullptr);
  });
}
cudaError_t CUDARTAPI cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return do_on_device([&] { sim::fill("cudaMemsetAsync", to, value, bytes, stream); });
}
cudaError_t CUDARTAPI cudaMemset(void* to, int value, std::size_t bytes) {
  return do_on_device([&] { sim::fill("cudaMemset", to, value, bytes, nullptr); });
}

}  // extern "C"
