// BlockBins: the free blocks of one pool, found by size.
#include <bit>

#include "runtime/caching_allocator.h"

namespace duet {
namespace {

constexpr std::size_t kUnit = 512;

}  // namespace

// Sizes in units of 512 bytes: 1..7 have a bin each; above, the three bits below the highest one
// choose among eight bins per power of two.
std::size_t BlockBins::bin_of(std::size_t bytes) noexcept {
  const std::size_t units = bytes / kUnit;
  if (units < 8) return units;
  const auto power = static_cast<std::size_t>(std::bit_width(units)) - 1;
  return 8 * (power - 2) + ((units >> (power - 3)) & 7U);
}

std::size_t BlockBins::next_occupied(std::size_t bin) const noexcept {
  if (bin >= kBins) return kBins;
  std::size_t word = bin / 64;
  std::uint64_t bits = occupied_[word] & (~std::uint64_t{0} << (bin % 64));
  while (bits == 0) {
    if (++word == occupied_.size()) return kBins;
    bits = occupied_[word];
  }
  return word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
}

void BlockBins::insert(Block* block) noexcept {
  const std::size_t bin = bin_of(block->size);
  Block* before = nullptr;
  Block* after = heads_[bin];
  while (after != nullptr && after->size < block->size) {
    before = after;
    after = after->bin_next;
  }
  block->bin_previous = before;
  block->bin_next = after;
  (before != nullptr ? before->bin_next : heads_[bin]) = block;
  if (after != nullptr) after->bin_previous = block;
  occupied_[bin / 64] |= std::uint64_t{1} << (bin % 64);
}

void BlockBins::remove(Block* block) noexcept {
  const std::size_t bin = bin_of(block->size);
  Block* const before = block->bin_previous;
  Block* const after = block->bin_next;
  (before != nullptr ? before->bin_next : heads_[bin]) = after;
  if (after != nullptr) after->bin_previous = before;
  block->bin_previous = block->bin_next = nullptr;
  if (heads_[bin] == nullptr) occupied_[bin / 64] &= ~(std::uint64_t{1} << (bin % 64));
}

Block* BlockBins::smallest_fitting(std::size_t bytes) const noexcept {
  const std::size_t own = bin_of(bytes);
  for (Block* b = heads_[own]; b != nullptr; b = b->bin_next) {
    if (b->size >= bytes) return b;
  }
  const std::size_t bin = next_occupied(own + 1);
  return bin == kBins ? nullptr : heads_[bin];
}

std::size_t BlockBins::largest() const noexcept {
  for (std::size_t bin = kBins; bin-- > 0;) {
    const Block* b = heads_[bin];
    if (b == nullptr) continue;
    while (b->bin_next != nullptr) b = b->bin_next;
    return b->size;
  }
  return 0;
}

}  // namespace duet
