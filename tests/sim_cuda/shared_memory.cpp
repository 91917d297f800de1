// One mapping holds it all. Static variables lie at its start with gaps between them; the dynamic
// part ends (but for the rest of its alignment) at a page that faults, so that an overrun stops at
// once:
//
//   | guard page | gap v0 gap v1 gap ... | gap dynamic rest | guard page |
//
// Gaps, rest and fresh variables are filled with the same byte. Under AddressSanitizer the gaps are
// poisoned as well, and an overrun is reported with its line.
#include "tests/sim_cuda/shared_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/sim_cuda/engine.h"

namespace sim {
namespace {

constexpr std::size_t kMostStatic = 48 * 1024;
constexpr std::size_t kMostTogether = 227 * 1024;
constexpr std::size_t kStaticArea = 256 * 1024;  // with the gaps
constexpr std::size_t kGap = 512;
constexpr std::size_t kAlignment = 128;  // of dynamic shared memory, as GPU_DYN_SHARED promises

std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

struct SharedMemory {
  unsigned char* map = nullptr;
  std::size_t page = 0;
  std::size_t mapped = 0;
  unsigned char* statics = nullptr;
  unsigned char* dynamic_end = nullptr;  // the guard page
  // Of this launch:
  std::size_t dynamic_bytes = 0;
  unsigned char* dynamic = nullptr;
  // Of this block:
  std::vector<const SharedVariable*> variables;
  std::size_t static_bytes = 0;  // as a GPU counts, without gaps
  std::size_t static_used = 0;   // with them
  std::size_t dirty = 0;         // of the static area, by earlier blocks
} memory;

unsigned char fill() { return options.poison ? 0xff : 0; }

void forbid([[maybe_unused]] const void* start, [[maybe_unused]] std::size_t bytes) {
  if constexpr (kAsan) __asan_poison_memory_region(start, bytes);
}
void allow([[maybe_unused]] const void* start, [[maybe_unused]] std::size_t bytes) {
  if constexpr (kAsan) __asan_unpoison_memory_region(start, bytes);
}

void map_memory() {
  memory.page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t inner = round_up(kStaticArea + kGap + kMostTogether, memory.page);
  memory.mapped = inner + 2 * memory.page;
  void* map =
      mmap(nullptr, memory.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) fail("no memory for shared memory");
  memory.map = static_cast<unsigned char*>(map);
  memory.statics = memory.map + memory.page;
  memory.dynamic_end = memory.statics + inner;
  mprotect(memory.map, memory.page, PROT_NONE);
  mprotect(memory.dynamic_end, memory.page, PROT_NONE);
}

// First byte of [start, start + bytes) that is not the fill, or null.
const unsigned char* changed(const unsigned char* start, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (*start == fill() && std::memcmp(start, start + 1, bytes - 1) == 0) return nullptr;  // fast
  const unsigned char* end = start + bytes;
  const unsigned char* at = std::find_if(start, end, [](unsigned char c) { return c != fill(); });
  return at == end ? nullptr : at;
}

void check_gap(const unsigned char* start, std::size_t bytes, const char* what, std::size_t size,
               const char* side, const unsigned char* variable, Place place) {
  allow(start, bytes);
  const unsigned char* at = changed(start, bytes);
  if (!at) return;
  fail(
      "shared memory overrun: a thread of this block wrote %s %s (%zu bytes, declared at %s:%d), "
      "at "
      "byte %td",
      side, what, size, place.file, place.line, at - variable);
}

}  // namespace

void begin_shared_grid(std::size_t dynamic_bytes) {
  if (!memory.map) {
    map_memory();
    memory.dirty = kStaticArea;  // fresh pages are 0
  }
  memory.dynamic_bytes = dynamic_bytes;
  memory.dynamic = memory.dynamic_end - round_up(dynamic_bytes, kAlignment);
  static unsigned char filled = fill();
  if (filled != fill()) memory.dirty = kStaticArea;
  filled = fill();
}

void begin_shared_block() {
  allow(memory.statics, memory.dirty);
  std::memset(memory.statics, fill(), memory.dirty);
  forbid(memory.statics, memory.dirty);
  memory.dirty = 0;
  memory.variables.clear();
  memory.static_bytes = 0;
  memory.static_used = 0;
  if (memory.dynamic_bytes == 0) return;
  unsigned char* start = memory.dynamic - kGap;
  const std::size_t bytes = static_cast<std::size_t>(memory.dynamic_end - start);
  allow(start, bytes);
  std::memset(start, fill(), bytes);
  forbid(start, bytes);
  allow(memory.dynamic, memory.dynamic_bytes);
}

void end_shared_block() {
  for (const SharedVariable* variable : memory.variables) {
    const auto* start = static_cast<const unsigned char*>(variable->address);
    check_gap(start - kGap, kGap, variable->name, variable->bytes, "before", start,
              variable->place);
    check_gap(start + variable->bytes, kGap, variable->name, variable->bytes, "behind", start,
              variable->place);
  }
  if (!memory.variables.empty()) memory.dirty = memory.static_used;
  if (memory.dynamic_bytes == 0) return;
  const unsigned char* end = memory.dynamic + memory.dynamic_bytes;
  const char* what = "dynamic shared memory";
  check_gap(memory.dynamic - kGap, kGap, what, memory.dynamic_bytes, "before", memory.dynamic, {});
  check_gap(end, static_cast<std::size_t>(memory.dynamic_end - end), what, memory.dynamic_bytes,
            "behind", memory.dynamic, {});
}

void* place_shared(SharedVariable& variable) {
  Thread& thread = current_thread();
  enter_engine();
  memory.static_bytes = round_up(memory.static_bytes, variable.alignment) + variable.bytes;
  if (memory.static_bytes > kMostStatic) {
    fail("static shared memory: %zu bytes with %s at %s:%d, at most %zu; use dynamic shared memory",
         memory.static_bytes, variable.name, variable.place.file, variable.place.line, kMostStatic);
  }
  if (memory.static_bytes + memory.dynamic_bytes > kMostTogether) {
    fail("shared memory: %zu bytes static and %zu dynamic, at most %zu together",
         memory.static_bytes, memory.dynamic_bytes, kMostTogether);
  }
  const std::size_t at =
      round_up(memory.static_used + kGap, std::max<std::size_t>(variable.alignment, 16));
  memory.static_used = at + variable.bytes + kGap;
  if (memory.static_used > kStaticArea)
    fail("more shared variables than the simulator has room for");
  variable.address = memory.statics + at;
  variable.block = block_serial;
  allow(variable.address, variable.bytes);
  memory.variables.push_back(&variable);
  void* address = variable.address;
  leave_engine(thread);
  return address;
}

void* dynamic_shared(Place place) {
  if (memory.dynamic_bytes == 0) {
    fail("uses dynamic shared memory, but was launched with 0 bytes of it, at %s:%d", place.file,
         place.line);
  }
  return memory.dynamic;
}

bool in_shared_memory(const void* address, std::size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(address);
  const auto inside = [&](const void* start, std::size_t size) {
    const auto* first = static_cast<const unsigned char*>(start);
    return at >= first && at + bytes <= first + size;
  };
  return (memory.dynamic_bytes != 0 && inside(memory.dynamic, memory.dynamic_bytes)) ||
         std::any_of(memory.variables.begin(), memory.variables.end(),
                     [&](const SharedVariable* variable) {
                       return inside(variable->address, variable->bytes);
                     });
}

bool in_shared_guard(const void* address) {
  const auto* at = static_cast<const unsigned char*>(address);
  const auto in_page = [&](const unsigned char* page) {
    return at >= page && at < page + memory.page;
  };
  return memory.map && (in_page(memory.map) || in_page(memory.dynamic_end));
}

void fail_shared_guard(const void* address) {
  const auto* at = static_cast<const unsigned char*>(address);
  if (at < memory.statics) fail("shared memory overrun: reads or writes before shared memory");
  fail(
      "shared memory overrun: reads or writes byte %td of dynamic shared memory, launched with %zu "
      "bytes",
      at - memory.dynamic, memory.dynamic_bytes);
}

}  // namespace sim
