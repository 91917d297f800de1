// CachingAllocator: the one memory policy, over any raw source.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/allocator.h"

namespace duet {

struct Block {
  void* data = nullptr;
  std::size_t size = 0;
};

class CachingAllocator final : public Allocator {
 public:
  explicit CachingAllocator(std::unique_ptr<RawSource> source) : source_(std::move(source)) {}
  Block* allocate(std::size_t bytes) override;
  void deallocate(Block* block) noexcept override;
  void* data(const Block* block) const noexcept override { return block->data; }
  void empty_cache() noexcept override;
  MemoryStats stats() const override { return stats_; }
  void reset_peak() override { stats_.peak_allocated = stats_.allocated; }

 private:
  std::unique_ptr<RawSource> source_;
  std::multimap<std::size_t, Block*> free_;
  MemoryStats stats_;
};

}  // namespace duet
