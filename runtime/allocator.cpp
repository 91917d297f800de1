// The process's allocators, the source of addresses on `meta`.
#include "runtime/allocator.h"

#include "runtime/caching_allocator.h"
#include "runtime/cpu/host_source.h"
#include "runtime/cpu/instruction_set.h"
#include "runtime/device_source.h"
#include "runtime/error.h"
#include "runtime/live_limit.h"
#include "runtime/meta_source.h"

namespace duet {
namespace {

constexpr std::size_t kMetaAlignment = std::size_t{2} << 20;

// Never destroyed: tensors in static objects may outlive any order of destruction.
CachingAllocator& make_allocator(std::unique_ptr<RawSource> source, const char* name) {
  return *std::make_unique<CachingAllocator>(std::move(source), name).release();
}

// Made at first use: on the cpu CUDA is never started. Where it cannot be used, every use throws.
CachingAllocator& cuda_allocator(Device device) {
  check(device.index == 0, ErrorKind::device, "allocator: one GPU is used: got ", device,
        ", expected cuda:0; choose another with CUDA_VISIBLE_DEVICES");
  static CachingAllocator& cuda = make_allocator(make_cuda_source(), "cuda:0");
  return cuda;
}

CachingAllocator& allocator_of(Device device) {
  // No kernel runs without a tensor, so none runs before the cap.
  static CachingAllocator& host = []() -> CachingAllocator& {
    cap_instruction_set();
    return make_allocator(std::make_unique<HostSource>(), "cpu");
  }();
  static CachingAllocator& meta = make_allocator(std::make_unique<MetaSource>(), "meta");
  if (device.type == DeviceType::cuda) return cuda_allocator(device);
  return device.type == DeviceType::cpu ? host : meta;
}

}  // namespace

void* MetaSource::allocate(std::size_t bytes) noexcept {
  constexpr std::uintptr_t kEnd = std::uintptr_t{1} << 62;
  if (bytes > kEnd - next_) return nullptr;
  const std::uintptr_t address = next_;
  next_ += (bytes + kMetaAlignment - 1) / kMetaAlignment * kMetaAlignment;
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): never followed
}

std::size_t MetaSource::part_bytes() const noexcept { return kHostPart; }  // plans as the host does

Allocator& allocator(Device device) { return allocator_of(device); }

void set_live_limit(Device device, std::size_t bytes) {
  allocator_of(device).set_live_limit(bytes);
}

std::size_t memory_room(Device device) { return allocator_of(device).room(); }

}  // namespace duet
