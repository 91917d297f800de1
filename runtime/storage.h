// Storage: one allocated block, shared by every tensor that looks into it.
#pragma once

#include <cstdint>

#include "runtime/allocator.h"

namespace duet {

class Storage {
 public:
  // Throws Error(memory) when the device has no room.
  Storage(std::size_t bytes, Device device)
      : device_(device), bytes_(bytes), block_(allocator(device).allocate(bytes)) {}
  ~Storage() { allocator(device_).deallocate(block_); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return allocator(device_).data(block_); }
  std::size_t bytes() const { return bytes_; }
  // See Allocator::mark; without a scope the owner stays.
  void mark(MemoryKind kind, ScopeId owner) { allocator(device_).mark(block_, kind, owner); }
  void mark(MemoryKind kind) { mark(kind, owner()); }
  ScopeId owner() const { return allocator(device_).owner(block_); }
  Device device() const { return device_; }

  // Counts in-place writes through any tensor on this storage; autograd compares it to notice that
  // a saved tensor went stale.
  std::uint32_t version = 0;

 private:
  Device device_;
  std::size_t bytes_;
  Block* block_;
};

}  // namespace duet
