// Every thread's copies that were started and not yet waited for, in order.
#include "tests/sim_cuda/async_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "tests/sim_cuda/engine.h"
#include "tests/sim_cuda/shared_memory.h"

namespace sim {
namespace {

struct Copy {
  void* destination;
  const void* source;
  std::size_t bytes;
  std::size_t source_bytes;
  unsigned group;
};

std::vector<std::deque<Copy>> queues;  // by number of the thread; empty at the end of a block

std::deque<Copy>& queue_of(const Thread& thread) {
  if (queues.size() <= thread.number) queues.resize(thread.number + 1);
  return queues[thread.number];
}

bool aligned(const void* address, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

}  // namespace

SIM_NO_TSAN void async_copy(void* destination, const void* source, std::size_t bytes,
                            std::size_t source_bytes, Place place) {
  Thread& thread = current_thread();
  enter_engine();
  if ((bytes != 4 && bytes != 8 && bytes != 16) || source_bytes > bytes) {
    fail("asynchronous copy of %zu bytes from %zu, expected 4, 8 or 16, at %s:%d", bytes,
         source_bytes, place.file, place.line);
  }
  if (!aligned(destination, bytes) || !aligned(source, bytes)) {
    fail("asynchronous copy of %zu bytes from %p to %p: both must be aligned to them, at %s:%d",
         bytes, source, destination, place.file, place.line);
  }
  if (!in_shared_memory(destination, bytes)) {
    fail("asynchronous copy to %p, which is not shared memory, at %s:%d", destination, place.file,
         place.line);
  }
  queue_of(thread).push_back({destination, source, bytes, source_bytes, thread.copy_groups});
  ++thread.pending_copies;
  leave_engine(thread);
  std::memset(destination, 0xff, bytes);
}

SIM_NO_TSAN void async_commit() { ++current_thread().copy_groups; }

SIM_NO_TSAN void async_wait(int left) {
  Thread& thread = current_thread();
  while (thread.pending_copies != 0) {
    enter_engine();
    const Copy copy = queue_of(thread).front();
    // Groups up to this one: those not committed have the number copy_groups.
    const bool complete = copy.group + static_cast<unsigned>(left) < thread.copy_groups;
    if (complete) {
      queue_of(thread).pop_front();
      --thread.pending_copies;
    }
    leave_engine(thread);
    if (!complete) return;
    std::memcpy(copy.destination, copy.source, copy.source_bytes);
    std::memset(static_cast<unsigned char*>(copy.destination) + copy.source_bytes, 0,
                copy.bytes - copy.source_bytes);
  }
}

}  // namespace sim
