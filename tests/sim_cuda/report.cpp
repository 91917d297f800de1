// The one way in which the simulator says that a kernel is wrong.
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "tests/sim_cuda/engine.h"
#include "tests/sim_cuda/thread.h"

namespace sim {
namespace {

// One line, cut where it is too long. Uses no memory of the heap: faults are reported through it.
class Line {
 public:
  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    add(format, arguments);
    va_end(arguments);
  }
  void add(const char* format, std::va_list arguments) {
    const int wanted = std::vsnprintf(text_ + length_, kMost - length_, format, arguments);
    if (wanted > 0) length_ = std::min(kMost - 1, length_ + static_cast<std::size_t>(wanted));
  }
  void write() {
    text_[length_++] = '\n';
    if (::write(STDERR_FILENO, text_, length_) < 0) return;  // nothing else is left to try
  }

 private:
  static constexpr std::size_t kMost = 2000;
  char text_[kMost + 1];
  std::size_t length_ = 0;
};

}  // namespace

void fail(const char* format, ...) {
  Line line;
  line.add("sim_cuda: ");
  if (kernel_name()) {
    line.add("kernel %s", kernel_name());
    if (in_block()) line.add(", block (%u,%u,%u)", block_index.x, block_index.y, block_index.z);
    if (current) {
      const uint3 at = current->index;
      line.add(", thread (%u,%u,%u)", at.x, at.y, at.z);
    }
    line.add(": ");
  }
  std::va_list arguments;
  va_start(arguments, format);
  line.add(format, arguments);
  va_end(arguments);
  line.write();
  _exit(kExitStatus);
}

void check_launch(dim3 grid, dim3 block, std::size_t shared_bytes, const char* kernel) {
  constexpr unsigned kMostThreads = 1024;
  constexpr unsigned kMostBlockZ = 64;
  constexpr unsigned kMostGridX = 0x7fffffff;
  constexpr unsigned kMostGridYZ = 65535;
  constexpr std::size_t kMostShared = 227 * 1024;
  const auto refuse = [&](const char* what) {
    fail(
        "kernel %s: %s: launched with a grid of (%u,%u,%u), a block of (%u,%u,%u), %zu bytes of "
        "dynamic shared memory",
        kernel, what, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes);
  };
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) refuse("a grid of 0 blocks");
  if (block.x == 0 || block.y == 0 || block.z == 0) refuse("a block of 0 threads");
  if (std::size_t{block.x} * block.y > kMostThreads ||
      std::size_t{block.x} * block.y * block.z > kMostThreads) {
    refuse("more than 1024 threads in a block");
  }
  if (block.z > kMostBlockZ) refuse("a block deeper than 64 in z");
  if (grid.x > kMostGridX) refuse("a grid of more than 2147483647 blocks in x");
  if (grid.y > kMostGridYZ) refuse("a grid of more than 65535 blocks in y");
  if (grid.z > kMostGridYZ) refuse("a grid of more than 65535 blocks in z");
  if (shared_bytes > kMostShared) refuse("more than 227 KiB of dynamic shared memory");
}

}  // namespace sim
