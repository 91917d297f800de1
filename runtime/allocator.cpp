// The process's allocators, the source of addresses on `meta`.
#include "runtime/allocator.h"

#include "runtime/caching_allocator.h"
#include "runtime/cpu/host_source.h"
#include "runtime/error.h"
#include "runtime/live_limit.h"
#include "runtime/meta_source.h"

namespace duet {
namespace {

constexpr std::size_t kMetaAlignment = std::size_t{2} << 20;

// Never destroyed: tensors in static objects may outlive any order of destruction.
template <class Source>
CachingAllocator& make_allocator(const char* name) {
  return *std::make_unique<CachingAllocator>(std::make_unique<Source>(), name).release();
}

CachingAllocator& allocator_of(Device device) {
  static CachingAllocator& host = make_allocator<HostSource>("cpu");
  static CachingAllocator& meta = make_allocator<MetaSource>("meta");
  check(device.type != DeviceType::cuda, ErrorKind::device, "allocator: no memory of ", device,
        " in this build; run with --device cpu");
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
