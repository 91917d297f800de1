#include "runtime/cpu/process_memory.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace duet {

namespace {

// Number `field` of /proc/self/statm (0: pages of address space, 1: resident ones), in bytes.
std::uint64_t pages_of(int field) {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0;
  for (int i = 0; i <= field; ++i) file >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

std::uint64_t resident_bytes() { return pages_of(1); }
std::uint64_t mapped_bytes() { return pages_of(0); }

std::uint64_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

std::uint64_t malloc_bytes() {
#ifdef __GLIBC__
  const struct mallinfo2 info = ::mallinfo2();
  return info.arena + info.hblkhd;
#else
  return 0;
#endif
}

}  // namespace duet
