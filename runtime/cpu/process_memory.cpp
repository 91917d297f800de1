#include "runtime/cpu/process_memory.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace duet {

// /proc/self/statm: pages of the program, resident pages, ...
std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

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
