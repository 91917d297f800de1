#include "runtime/caching_allocator.h"

#include <algorithm>
#include <cstdlib>

#include "runtime/error.h"

namespace duet {
namespace {
class HostSource final : public RawSource {
 public:
  void* allocate(std::size_t bytes) noexcept override { return std::aligned_alloc(64, bytes); }
  void deallocate(void* data, std::size_t) noexcept override { std::free(data); }
  std::size_t total_bytes() const noexcept override { return 0; }
  std::size_t free_bytes() const noexcept override { return 0; }
};
class MetaSource final : public RawSource {
 public:
  void* allocate(std::size_t) noexcept override { return this; }
  void deallocate(void*, std::size_t) noexcept override {}
  std::size_t total_bytes() const noexcept override { return 0; }
  std::size_t free_bytes() const noexcept override { return 0; }
};
}  // namespace

Block* CachingAllocator::allocate(std::size_t bytes) {
  const std::size_t size = std::max<std::size_t>(512, (bytes + 511) / 512 * 512);
  Block* block = nullptr;
  if (auto it = free_.find(size); it != free_.end()) {
    block = it->second;
    free_.erase(it);
  } else {
    block = new Block{source_->allocate(size), size};
    check(block->data != nullptr, ErrorKind::memory, "out of memory: asked for ", size);
    stats_.reserved += size;
  }
  stats_.allocated += size;
  stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
  return block;
}
void CachingAllocator::deallocate(Block* block) noexcept {
  stats_.allocated -= block->size;
  free_.emplace(block->size, block);
}
void CachingAllocator::empty_cache() noexcept {}

Allocator& allocator(Device device) {
  static CachingAllocator* host = new CachingAllocator(std::make_unique<HostSource>());
  static CachingAllocator* meta = new CachingAllocator(std::make_unique<MetaSource>());
  check(device.type != DeviceType::cuda, ErrorKind::device, "no cuda allocator in this build");
  return device.type == DeviceType::cpu ? *host : *meta;
}

}  // namespace duet
