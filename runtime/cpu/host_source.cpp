#include "runtime/cpu/host_source.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>

#include "runtime/cpu/memory_limits.h"

namespace duet {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kCheckEvery = std::size_t{64} << 20;  // asking reads a dozen small files
constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

struct Room {
  std::size_t total = kUnlimited;
  std::size_t free = kUnlimited;
};

// Of the limits that count what was written: address space is refused by mmap itself.
Room room_or_unlimited() noexcept {
  Room room;
  try {
    for (const MemoryLimit& limit : memory_limits()) {
      if (limit.counts_address_space) continue;
      room.total = std::min(room.total, limit.total);
      room.free = std::min(room.free, limit.free);
    }
  } catch (...) {
    return {};  // unknown: let the system decide
  }
  return room;
}

}  // namespace

// Mapped at a multiple of 2 MiB, so that the kernel can use huge pages: fewer page faults and
// address translations.
void* HostSource::allocate(std::size_t bytes) noexcept {
  // Memory that was given but never written does not show in the machine's numbers; ours has it.
  if (unchecked_ + bytes >= kCheckEvery) {
    const Room room = room_or_unlimited();
    if (unchecked_ + bytes > room.free || given_ + bytes > room.total) return nullptr;
    unchecked_ = 0;
  }
  const std::size_t mapped = bytes + kHugePage;
  void* const raw =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* const base = static_cast<std::byte*>(raw);
  const std::size_t skip =
      (kHugePage - reinterpret_cast<std::uintptr_t>(raw) % kHugePage) % kHugePage;
  const std::size_t end = skip + (bytes + kHostPart - 1) / kHostPart * kHostPart;
  if (skip > 0) ::munmap(base, skip);
  if (end < mapped) ::munmap(base + end, mapped - end);
  ::madvise(base + skip, bytes, MADV_HUGEPAGE);  // a wish: refused where huge pages are off
  given_ += bytes;
  unchecked_ += bytes;
  return base + skip;
}

void HostSource::deallocate(void* data, std::size_t bytes) noexcept {
  ::munmap(data, bytes);
  given_ -= bytes;
}

SourceLimit HostSource::limit() const {
  const MemoryLimit limit = tightest_memory_limit();
  return {limit.name, limit.total, limit.free};
}

}  // namespace duet
