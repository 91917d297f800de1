// The seam between tensors and memory. One policy (CachingAllocator) runs over every raw source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/memory_events.h"

namespace duet {

// What keeps a source from giving more: "address-space limit (ulimit -v)", of which so much is
// free.
struct SourceLimit {
  std::string name;
  std::size_t total = 0;  // 0 if unknown
  std::size_t free = 0;
};

// A queue of work on a device. Whatever says nothing else runs on stream 0, in order.
using StreamId = std::uint32_t;
inline constexpr StreamId kComputeStream = 0;
inline constexpr StreamId kMaxStreams = 32;
// A point in the work of a stream; 0: one that has passed.
using EventId = std::uint64_t;

// Where bytes come from: the host, a GPU, nowhere (meta), or a failing fake in tests.
class RawSource {
 public:
  RawSource() = default;
  RawSource(const RawSource&) = delete;
  RawSource& operator=(const RawSource&) = delete;
  virtual ~RawSource() = default;

  // `bytes` at 64-byte alignment, or null when there is no more.
  virtual void* allocate(std::size_t bytes) noexcept = 0;
  virtual void deallocate(void* data, std::size_t bytes) noexcept = 0;
  // If not 0: deallocate() also takes a part of what allocate() gave, when the part begins and ends
  // at multiples of this many bytes.
  virtual std::size_t part_bytes() const noexcept { return 0; }
  // Whether there are bytes behind the addresses that allocate() gave.
  virtual bool has_bytes() const noexcept { return false; }
  // The tightest one, for messages.
  virtual SourceLimit limit() const { return {}; }
  // Sets bytes that allocate() gave to `byte`, in order with the work of the compute stream.
  virtual void fill(void* data, int byte, std::size_t bytes) noexcept {
    std::memset(data, byte, bytes);
  }
  // The end of the work that the stream was given so far. passed(): is it done? Then, and after
  // wait(), the event is gone. Where there are no streams, work is done when its call returns.
  virtual EventId record(StreamId) noexcept { return 0; }
  virtual bool passed(EventId) noexcept { return true; }
  virtual void wait(EventId) noexcept {}
};

struct Block;  // caching_allocator.h

struct MemoryStats {
  std::size_t allocated = 0;          // bytes in live blocks now
  std::size_t peak_allocated = 0;     // highest `allocated` since reset_peak()
  std::size_t reserved = 0;           // bytes held from the source: live + cached
  std::size_t peak_reserved = 0;      // highest `reserved` since reset_peak()
  std::size_t largest_free = 0;       // bytes of the largest cached block
  std::uint64_t allocations = 0;      // allocate() calls
  std::uint64_t raw_allocations = 0;  // calls that had to ask the source
  double poison_seconds = 0;          // spent on set_poison()'s filling
};

// Live bytes of one kind in one memory scope, without those of the scopes inside it.
struct MemoryOwner {
  std::string path;  // "blocks.3.attn"; "" for blocks made outside any scope
  std::size_t bytes = 0;
  MemoryKind kind = MemoryKind::temporary;
};

// The memory held from the source: segments in order of their making, the blocks of each in order
// of address. A segment of which the middle went back is two.
struct MemoryMapBlock {
  std::size_t bytes = 0;
  bool free = false;
  std::uint64_t number = 0;  // of the allocate() call; 0 if free
};
struct MemoryMapSegment {
  std::size_t bytes = 0;
  std::vector<MemoryMapBlock> blocks;
};

class Allocator {
 public:
  Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  virtual ~Allocator() = default;

  // At least `bytes` bytes, 64-byte aligned, owned by the current memory scope. Never null: throws
  // Error(memory) naming asked, live, cached, largest free block and largest owners, after giving
  // cached blocks back to the source and trying again. 0 bytes are a block of their own, too.
  virtual Block* allocate(std::size_t bytes) = 0;
  virtual void deallocate(Block* block) noexcept = 0;
  virtual void* data(const Block* block) const noexcept = 0;
  // A block turned out to be a gradient, or is kept for backward; `owner` is its scope from now on.
  // Temporary blocks change, and saved ones that become gradients: a weight that an op saves stays
  // a weight.
  virtual void mark(Block* block, MemoryKind kind, ScopeId owner) noexcept = 0;
  virtual ScopeId owner(const Block* block) const noexcept = 0;
  // Gives every wholly free segment back to the source, after waiting for the streams that still
  // use one.
  virtual void empty_cache() noexcept = 0;
  virtual MemoryStats stats() const = 0;
  virtual void reset_peak() = 0;
  // The scopes (by kind) with the most live bytes, largest first, at most `count`: now, and at the
  // moment when `allocated` was at its peak.
  virtual std::vector<MemoryOwner> largest_owners(std::size_t count) const = 0;
  virtual std::vector<MemoryOwner> peak_owners(std::size_t count) const = 0;
  virtual std::vector<MemoryMapSegment> map() const = 0;
  // Caps `reserved`; 0 lifts the cap. Gives cached blocks back if they exceed it.
  virtual void set_limit(std::size_t bytes) = 0;
  virtual std::size_t limit() const = 0;
  // Fills every block handed out or freed from now on with 0xFF bytes, NaN in every floating dtype:
  // who reads memory that was never written, or is no longer his, gets NaN. Does nothing where the
  // memory has no bytes. Other times hold the filling too; poison_seconds tells how much it was.
  // Returns what was set before.
  virtual bool set_poison(bool on) = 0;
  // Hears every event from now on; null: nobody does.
  virtual void set_listener(MemoryListener* listener) noexcept = 0;
  // Work that was given to another stream than the compute stream uses the block: once freed, it is
  // given to nobody before that work is done. Requires: stream < kMaxStreams.
  virtual void used_on(Block* block, StreamId stream) noexcept = 0;
  // Every block comes straight from the source, of the bytes asked for, and goes straight back: a
  // source that guards its allocations then guards every tensor. Returns what was set before.
  virtual bool set_pass_through(bool on) = 0;
};

// Memory is poisoned, or is not, until the end of the C++ block.
class PoisonScope {
 public:
  PoisonScope(Allocator& memory, bool on) : memory_(memory), previous_(memory.set_poison(on)) {}
  ~PoisonScope() { memory_.set_poison(previous_); }
  PoisonScope(const PoisonScope&) = delete;
  PoisonScope& operator=(const PoisonScope&) = delete;

 private:
  Allocator& memory_;
  bool previous_;
};

// The allocator of a device. Throws Error(device) if this build has none for it.
Allocator& allocator(Device device);

}  // namespace duet
