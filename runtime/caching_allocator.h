// CachingAllocator: the one memory policy, over any raw source.
//
//  1. A request is rounded up to 512 bytes; 0 bytes count as 512.
//  2. Requests up to 256 KiB come from the small pool, others from the large one, so that crumbs
//     that live long do not break up big blocks.
//  3. Free blocks lie in bins by size, eight per power of two. The smallest block that fits is
//     taken; among equals the one freed last, whose bytes are likely still in the cache.
//  4. A block larger than the request is split; the rest stays free.
//  5. A freed block merges with its free neighbours at once, so a segment whose blocks are all free
//     is one block again.
//  6. Where no block fits, the source gives a new segment: of 2 MiB, or of whole 2 MiB for a large
//     request. Segments are kept, so a steady training step asks the source for nothing.
//  7. Before `reserved` grows beyond 9/8 of the highest live bytes, unused memory goes back first:
//     alternating shapes cannot pile up caches that fit neither.
//     A limit on live bytes bounds it in the same way.
//  8. Where the source refuses, or the limit does: ask for the bare size; give everything unused
//     back, parts of segments too if the source takes parts; ask again; then throw.
//  9. Every block belongs to the memory scope it was made in and is of a kind (parameters,
//     gradients, ...); live bytes are counted per scope and kind, now and at the peak.
// 10. On demand, blocks are filled with NaN when they are handed out and when they are freed.
// 11. Decisions follow from the order of calls alone, never from addresses or time: a step on
//     `meta` makes the same decisions as one on a device.
// 12. A block freed and taken again stays in order by itself: both users work on the compute
//     stream. One that another stream used is parked when it is freed, with an event of that
//     stream. Parked blocks become free at the next request after their event has passed (the one
//     exception to 11), and are waited for before memory counts as exhausted or goes back.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/allocator.h"

namespace duet {

// A piece of a segment, live or free. A segment is a chain of blocks in order of address.
struct Block {
  std::byte* data = nullptr;
  std::size_t size = 0;
  Block* previous = nullptr;  // neighbours in the segment
  Block* next = nullptr;
  Block* bin_previous = nullptr;  // neighbours in the bin, while free
  Block* bin_next = nullptr;      // or, while parked, the block parked next
  EventId event = 0;              // while parked: what it waits for
  std::uint32_t streams = 0;      // bit s: used on stream s, and not yet known to be done there
  std::uint64_t number = 0;       // of the allocate() call, while live
  std::uint64_t segment = 0;      // the number of the source's call that it came from
  std::size_t asked = 0;
  ScopeId owner = 0;
  MemoryKind kind = MemoryKind::temporary;
  bool free = false;
  bool small = false;   // of the small pool
  bool parked = false;  // freed, but still in use on another stream
  bool direct = false;  // a segment of its own that goes straight back
};

// The free blocks of a pool, in bins by size; each bin is a list from small to large.
class BlockBins {
 public:
  void insert(Block* block) noexcept;
  void remove(Block* block) noexcept;
  Block* smallest_fitting(std::size_t bytes) const noexcept;  // null if none
  std::size_t largest() const noexcept;                       // bytes of the largest block
  // Calls f on every block, from the bin of the largest down; f may remove it.
  template <class F>
  void for_each(F&& f) noexcept {
    for (std::size_t bin = kBins; bin-- > 0;) {
      for (Block* b = heads_[bin]; b != nullptr;) {
        Block* const next = b->bin_next;
        f(b);
        b = next;
      }
    }
  }

 private:
  static constexpr std::size_t kBins = 448;
  static std::size_t bin_of(std::size_t bytes) noexcept;
  std::size_t next_occupied(std::size_t bin) const noexcept;  // the first >= bin; kBins if none

  std::array<Block*, kBins> heads_{};
  std::array<std::uint64_t, kBins / 64> occupied_{};
};

class CachingAllocator final : public Allocator {
 public:
  // `name` is the device's, for messages.
  CachingAllocator(std::unique_ptr<RawSource> source, std::string name)
      : source_(std::move(source)), name_(std::move(name)) {}
  ~CachingAllocator() override;

  Block* allocate(std::size_t bytes) override;
  void deallocate(Block* block) noexcept override;
  void* data(const Block* block) const noexcept override { return block->data; }
  void used_on(Block* block, StreamId stream) noexcept override;
  void mark(Block* block, MemoryKind kind, ScopeId owner) noexcept override;
  ScopeId owner(const Block* block) const noexcept override { return block->owner; }
  void empty_cache() noexcept override;
  MemoryStats stats() const override;
  void reset_peak() override;
  std::vector<MemoryOwner> largest_owners(std::size_t count) const override;
  std::vector<MemoryOwner> peak_owners(std::size_t count) const override;
  std::vector<MemoryMapSegment> map() const override;
  void set_limit(std::size_t bytes) override;
  std::size_t limit() const override;
  bool set_poison(bool on) override;
  bool set_pass_through(bool on) override;
  void set_listener(MemoryListener* listener) noexcept override;
  void set_live_limit(std::size_t bytes);  // both: runtime/live_limit.h
  std::size_t room() const;

 private:
  void poison(const Block* block) noexcept;
  void tell(MemoryEvent::Type type, const Block* block) const noexcept;
  BlockBins& pool(const Block* block) { return block->small ? small_ : large_; }
  Block* new_record();
  void drop_record(Block* block) noexcept;
  Block* split(Block* block, std::size_t bytes, Block* rest) noexcept;
  Block* merge(Block* left, Block* right) noexcept;

  void make_free(Block* block) noexcept;
  void record_event(Block* block) noexcept;
  void collect_parked(bool wait) noexcept;

  Block* take(std::size_t size);
  Block* grow(std::size_t size, bool small);
  Block* grow_direct(std::size_t size, std::size_t asked);
  Block* new_segment(std::size_t bytes, bool small);
  std::size_t release(std::size_t wanted) noexcept;
  std::size_t release_block(Block* block) noexcept;
  void count_peak() noexcept;
  [[noreturn]] void throw_out_of_memory(std::size_t bytes) const;

  mutable std::mutex mutex_;
  std::unique_ptr<RawSource> source_;
  std::string name_;
  std::size_t limit_ = 0, live_limit_ = 0;
  bool poison_ = false, pass_through_ = false;
  MemoryListener* listener_ = nullptr;
  BlockBins small_, large_;
  std::deque<Block> records_;
  Block* spare_records_ = nullptr;
  Block* parked_ = nullptr;  // linked by bin_next
  MemoryStats stats_;
  std::size_t highest_allocated_ = 0;  // ever; reset_peak() does not forget it
  // Live bytes, by scope and kind.
  using Owners = std::vector<std::array<std::size_t, kMemoryKinds>>;
  static std::size_t& bytes_of(Owners& owners, const Block* block) noexcept {
    return owners[block->owner][static_cast<std::size_t>(block->kind)];
  }
  static std::vector<MemoryOwner> list(const Owners& owners);
  Owners owners_, peak_owners_;
  bool at_peak_ = false;
};

}  // namespace duet
