#include "runtime/cpu/host_source.h"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace duet {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kCheckEvery = std::size_t{64} << 20;  // asking reads a dozen small files
constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

std::size_t read_number(const std::string& path) {
  std::size_t value = kUnlimited;
  std::ifstream in(path);
  if (!(in >> value)) return kUnlimited;  // missing, or the word "max"
  return value;
}

// The bytes behind `key` in a file of "key value [kB]" lines.
std::size_t read_field(const std::string& path, const std::string& key, std::size_t otherwise) {
  std::ifstream in(path);
  std::string word;
  std::size_t value = 0;
  while (in >> word) {
    if (word == key && in >> value) return value;
  }
  return otherwise;
}

struct Room {
  std::size_t total = kUnlimited;
  std::size_t free = kUnlimited;
};

// Tightens `room` by one control group and its parents. File cache counts as free: the kernel drops
// it when memory gets short.
void apply_groups(const std::string& root, std::string group, const char* limit_file,
                  const char* usage_file, Room& room) {
  while (true) {
    const std::string directory = root + (group == "/" ? "" : group);
    const std::size_t limit = read_number(directory + limit_file);
    const std::size_t usage = read_number(directory + usage_file);
    if (limit != kUnlimited && usage != kUnlimited) {
      const std::size_t cache = read_field(directory + "/memory.stat", "inactive_file", 0) +
                                read_field(directory + "/memory.stat", "active_file", 0);
      const std::size_t used = usage - std::min(usage, cache);
      room.total = std::min(room.total, limit);
      room.free = std::min(room.free, limit - std::min(limit, used));
    }
    const std::size_t slash = group.find_last_of('/');
    if (slash == std::string::npos || group == "/") return;
    group = slash == 0 ? "/" : group.substr(0, slash);
  }
}

Room machine_room() {
  Room room;
  constexpr std::size_t kKilo = 1024;
  const std::size_t total = read_field("/proc/meminfo", "MemTotal:", 0);
  const std::size_t free = read_field("/proc/meminfo", "MemAvailable:", 0);
  if (total != 0) room = {total * kKilo, free * kKilo};
  // Lines "hierarchy:controllers:path": version 2 has no controllers, version 1 names "memory".
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      apply_groups("/sys/fs/cgroup", path, "/memory.max", "/memory.current", room);
    } else if (controllers == "memory") {
      apply_groups("/sys/fs/cgroup/memory", path, "/memory.limit_in_bytes",
                   "/memory.usage_in_bytes", room);
    }
  }
  return room;
}

Room room_or_unlimited() noexcept {
  try {
    return machine_room();
  } catch (...) {
    return {};  // unknown: let the system decide
  }
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

std::size_t HostSource::total_bytes() const noexcept {
  const std::size_t total = room_or_unlimited().total;
  return total == kUnlimited ? 0 : total;
}

std::size_t HostSource::free_bytes() const noexcept {
  const std::size_t free = room_or_unlimited().free;
  return free == kUnlimited ? 0 : free;
}

}  // namespace duet
