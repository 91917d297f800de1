#include "runtime/caching_allocator.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <utility>

namespace duet {
namespace {

constexpr std::size_t kUnit = 512;
constexpr std::size_t kSmallLimit = std::size_t{256} << 10;
constexpr std::size_t kSegment = std::size_t{2} << 20;
// Growth below this needs no thrift: a small pool's segment and a little of the large pool's.
constexpr std::size_t kSlack = 2 * kSegment;
constexpr std::size_t kBareUnit = std::size_t{64} << 10;  // of a segment when memory is short

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}
std::size_t round_down(std::size_t bytes, std::size_t unit) { return bytes / unit * unit; }

}  // namespace

CachingAllocator::~CachingAllocator() { empty_cache(); }

Block* CachingAllocator::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  // Beyond this no source has room, and rounding up could wrap around.
  if (bytes > std::numeric_limits<std::size_t>::max() / 4) throw_out_of_memory(bytes);
  const ScopeId owner = current_scope();
  if (owner >= owners_.size()) {
    peak_owners_.resize(owner + 1);  // here, because deallocate() must not throw
    owners_.resize(owner + 1);
  }
  const std::size_t size = std::max(round_up(bytes, kUnit), kUnit);
  if (live_limit_ != 0 && stats_.allocated + size > live_limit_) throw_out_of_memory(bytes);
  if (parked_ != nullptr) collect_parked(false);
  Block* block = pass_through_ ? grow_direct(size, bytes) : take(size);
  if (block == nullptr) throw_out_of_memory(bytes);
  block->free = false;
  block->owner = owner;
  block->kind = current_memory_kind();
  block->asked = bytes;
  block->number = ++stats_.allocations;
  bytes_of(owners_, block) += size;
  stats_.allocated += size;
  highest_allocated_ = std::max(highest_allocated_, stats_.allocated);
  if (stats_.allocated > stats_.peak_allocated) {
    stats_.peak_allocated = stats_.allocated;
    at_peak_ = true;
  }
  poison(block);
  tell(MemoryEvent::Type::allocate, block);
  return block;
}

// A cached block of exactly `size` bytes, or one from the source, or null.
Block* CachingAllocator::take(std::size_t size) {
  const bool small = size <= kSmallLimit;
  BlockBins& bins = small ? small_ : large_;
  Block* block = bins.smallest_fitting(size);
  if (block == nullptr) block = grow(size, small);
  if (block == nullptr) return nullptr;
  Block* const rest = block->size > size ? new_record() : nullptr;
  bins.remove(block);
  if (rest != nullptr) bins.insert(split(block, size, rest));
  return block;
}

void CachingAllocator::deallocate(Block* block) noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(at_peak_, false))
    std::copy(owners_.begin(), owners_.end(), peak_owners_.begin());
  bytes_of(owners_, block) -= block->size;
  stats_.allocated -= block->size;
  tell(MemoryEvent::Type::free, block);
  if (block->streams == 0) return make_free(block);
  block->parked = true;
  record_event(block);
  block->bin_next = std::exchange(parked_, block);
}

// Nobody uses the block any more.
void CachingAllocator::make_free(Block* block) noexcept {
  poison(block);
  if (block->direct) {
    source_->deallocate(block->data, std::max<std::size_t>(block->asked, 1));
    stats_.reserved -= block->size;
    return drop_record(block);
  }
  BlockBins& bins = pool(block);
  block->free = true;
  if (Block* left = block->previous; left != nullptr && left->free) {
    bins.remove(left);
    block = merge(left, block);
  }
  if (Block* right = block->next; right != nullptr && right->free) {
    bins.remove(right);
    block = merge(block, right);
  }
  bins.insert(block);
}

void CachingAllocator::used_on(Block* block, StreamId stream) noexcept {
  const std::lock_guard lock(mutex_);
  if (stream != kComputeStream && stream < kMaxStreams) block->streams |= 1U << stream;
}

// A block used on several streams waits for one after the other: an event of the next is recorded
// when the one before has passed. That is later than need be, and takes no list per block.
void CachingAllocator::record_event(Block* block) noexcept {
  block->event = source_->record(static_cast<StreamId>(std::countr_zero(block->streams)));
}

// Frees the parked blocks whose streams are done, or waits for all.
void CachingAllocator::collect_parked(bool wait) noexcept {
  for (Block** link = &parked_; *link != nullptr;) {
    Block* const block = *link;
    while (block->streams != 0) {
      if (wait && block->event != 0) source_->wait(block->event);
      if (!wait && block->event != 0 && !source_->passed(block->event)) break;
      block->streams &= block->streams - 1;
      if (block->streams != 0) record_event(block);
    }
    if (block->streams != 0) {
      link = &block->bin_next;
      continue;
    }
    *link = std::exchange(block->bin_next, nullptr);
    block->parked = false;
    make_free(block);
  }
}

// `owner` is the scope of a block, so its counters exist.
void CachingAllocator::mark(Block* block, MemoryKind kind, ScopeId owner) noexcept {
  const std::lock_guard lock(mutex_);
  const bool handed_over = block->kind == MemoryKind::saved && kind == MemoryKind::gradients;
  if ((block->kind != MemoryKind::temporary && !handed_over) || kind == MemoryKind::temporary) {
    return;
  }
  bytes_of(owners_, block) -= block->size;
  block->kind = kind;
  if (owner < owners_.size()) block->owner = owner;
  bytes_of(owners_, block) += block->size;
  tell(MemoryEvent::Type::mark, block);
}

bool CachingAllocator::set_poison(bool on) {
  const std::lock_guard lock(mutex_);
  return std::exchange(poison_, on && source_->has_bytes());
}

bool CachingAllocator::set_pass_through(bool on) {
  const std::lock_guard lock(mutex_);
  if (on) release(std::numeric_limits<std::size_t>::max());
  return std::exchange(pass_through_, on);
}

void CachingAllocator::poison(const Block* block) noexcept {
  if (!poison_) return;
  const auto begin = std::chrono::steady_clock::now();
  source_->fill(block->data, 0xFF, block->direct ? block->asked : block->size);
  stats_.poison_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void CachingAllocator::set_listener(MemoryListener* listener) noexcept {
  const std::lock_guard lock(mutex_);
  listener_ = listener;
}

void CachingAllocator::tell(MemoryEvent::Type type, const Block* block) const noexcept {
  if (listener_ == nullptr) return;
  listener_->on_memory({type, block->kind, block->owner, block->number, block->asked, block->size,
                        stats_.reserved, current_op()});
}

// A free block of at least `size` bytes from the source, or null.
Block* CachingAllocator::grow(std::size_t size, bool small) {
  std::size_t usual = small ? kSegment : round_up(size, kSegment);
  const std::size_t bare = round_up(size, kBareUnit);
  const std::size_t live = std::max(highest_allocated_, stats_.allocated + size);
  std::size_t allowed = live + live / 8 + kSlack;
  if (live_limit_ != 0) allowed = std::min(allowed, live_limit_);
  if (stats_.reserved + usual > allowed) release(stats_.reserved + usual - allowed);
  if (live_limit_ != 0 && stats_.reserved + usual > live_limit_) usual = bare;
  for (const std::size_t bytes : {usual, bare}) {
    if (Block* segment = new_segment(bytes, small)) return segment;
  }
  collect_parked(true);
  if (Block* block = (small ? small_ : large_).smallest_fitting(size)) return block;
  release(std::numeric_limits<std::size_t>::max());
  for (const std::size_t bytes : {usual, bare}) {
    if (Block* segment = new_segment(bytes, small)) return segment;
  }
  return nullptr;
}

// A block that is a segment: `size` bytes by the counters, of which the source gives those asked
// for.
Block* CachingAllocator::grow_direct(std::size_t size, std::size_t asked) {
  Block* const block = new_record();
  void* data = nullptr;
  for (const bool again : {false, true}) {
    if (again) {
      collect_parked(true);
      release(std::numeric_limits<std::size_t>::max());
    }
    if (limit_ != 0 && stats_.reserved + size > limit_) continue;
    data = source_->allocate(std::max<std::size_t>(asked, 1));
    if (data != nullptr) break;
  }
  if (data == nullptr) {
    drop_record(block);
    return nullptr;
  }
  block->data = static_cast<std::byte*>(data);
  block->size = size;
  block->direct = true;
  block->segment = ++stats_.raw_allocations;
  stats_.reserved += size;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  return block;
}

Block* CachingAllocator::new_segment(std::size_t bytes, bool small) {
  if (limit_ != 0 && stats_.reserved + bytes > limit_) return nullptr;
  Block* const block = new_record();
  void* const data = source_->allocate(bytes);
  if (data == nullptr) {
    drop_record(block);
    return nullptr;
  }
  block->data = static_cast<std::byte*>(data);
  block->size = bytes;
  block->small = small;
  block->free = true;
  block->segment = ++stats_.raw_allocations;
  pool(block).insert(block);
  stats_.reserved += bytes;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  return block;
}

// Gives unused memory back, large blocks first, until `wanted` bytes are; returns how many are.
std::size_t CachingAllocator::release(std::size_t wanted) noexcept {
  std::size_t released = 0;
  for (BlockBins* bins : {&large_, &small_}) {
    bins->for_each([&](Block* block) {
      if (released < wanted) released += release_block(block);
    });
  }
  return released;
}

// Gives back a whole segment, or the part of one that the source takes. Returns the bytes.
std::size_t CachingAllocator::release_block(Block* block) noexcept {
  const bool whole = block->previous == nullptr && block->next == nullptr;
  const std::size_t part = source_->part_bytes();
  if (!whole && part == 0) return 0;
  BlockBins& bins = pool(block);
  if (!whole) {
    // Cut off what lies before the first and after the last multiple of `part`.
    const auto begin = reinterpret_cast<std::uintptr_t>(block->data);
    const std::size_t head = block->previous != nullptr ? round_up(begin, part) - begin : 0;
    const std::size_t end =
        block->next != nullptr ? round_down(begin + block->size, part) - begin : block->size;
    if (head > block->size || end <= head) return 0;
    if (spare_records_ == nullptr || spare_records_->next == nullptr) {
      try {  // two records, so that cutting cannot fail half way
        Block* const a = new_record();
        drop_record(new_record());
        drop_record(a);
      } catch (const std::bad_alloc&) {
        return 0;
      }
    }
    const std::size_t tail = block->size - end;
    bins.remove(block);
    if (tail > 0) bins.insert(split(block, end, new_record()));
    if (head > 0) {
      Block* const middle = split(block, head, new_record());
      bins.insert(block);
      block = middle;
    }
    if (block->previous != nullptr) block->previous->next = nullptr;
    if (block->next != nullptr) block->next->previous = nullptr;
  } else {
    bins.remove(block);
  }
  const std::size_t bytes = block->size;
  source_->deallocate(block->data, bytes);
  stats_.reserved -= bytes;
  drop_record(block);
  return bytes;
}

void CachingAllocator::empty_cache() noexcept {
  const std::lock_guard lock(mutex_);
  collect_parked(true);
  release(std::numeric_limits<std::size_t>::max());
}

MemoryStats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  MemoryStats stats = stats_;
  stats.largest_free = std::max(small_.largest(), large_.largest());
  return stats;
}

std::vector<MemoryMapSegment> CachingAllocator::map() const {
  const std::lock_guard lock(mutex_);
  std::vector<const Block*> first;
  for (const Block& block : records_) {
    if (block.size > 0 && block.previous == nullptr) first.push_back(&block);
  }
  std::sort(first.begin(), first.end(), [](const Block* a, const Block* b) {
    return a->segment != b->segment ? a->segment < b->segment : a->data < b->data;
  });
  std::vector<MemoryMapSegment> segments;
  for (const Block* block : first) {
    MemoryMapSegment& segment = segments.emplace_back();
    for (; block != nullptr; block = block->next) {
      segment.bytes += block->size;
      const bool free = block->free || block->parked;
      segment.blocks.push_back({block->size, free, free ? 0 : block->number});
    }
  }
  return segments;
}

void CachingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_allocated = stats_.allocated;
  stats_.peak_reserved = stats_.reserved;
  at_peak_ = true;
}

void CachingAllocator::set_limit(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
  if (bytes != 0 && stats_.reserved > bytes) release(stats_.reserved - bytes);
}

std::size_t CachingAllocator::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

void CachingAllocator::set_live_limit(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  live_limit_ = bytes;
  if (bytes != 0 && stats_.reserved > bytes) release(stats_.reserved - bytes);
}

std::size_t CachingAllocator::room() const {
  const std::lock_guard lock(mutex_);
  std::size_t room = std::numeric_limits<std::size_t>::max();
  for (const std::size_t cap : {limit_, live_limit_}) {
    if (cap != 0) room = std::min(room, cap);
  }
  const SourceLimit limit = source_->limit();
  if (limit.total != 0) room = std::min(room, stats_.reserved + limit.free);
  return room == std::numeric_limits<std::size_t>::max() ? 0 : room;
}

// Block records are never given back to the system: their number is that of the most blocks ever.
Block* CachingAllocator::new_record() {
  if (spare_records_ == nullptr) return &records_.emplace_back();
  Block* const block = std::exchange(spare_records_, spare_records_->next);
  *block = {};
  return block;
}

void CachingAllocator::drop_record(Block* block) noexcept {
  block->size = 0;  // tells spare records from those in use
  block->next = std::exchange(spare_records_, block);
}

// Shortens `block` to `bytes`; `rest` becomes the free block behind it.
Block* CachingAllocator::split(Block* block, std::size_t bytes, Block* rest) noexcept {
  rest->data = block->data + bytes;
  rest->size = block->size - bytes;
  rest->small = block->small;
  rest->segment = block->segment;
  rest->free = true;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  block->next = rest;
  block->size = bytes;
  return rest;
}

Block* CachingAllocator::merge(Block* left, Block* right) noexcept {
  left->size += right->size;
  left->next = right->next;
  if (left->next != nullptr) left->next->previous = left;
  drop_record(right);
  return left;
}

}  // namespace duet
