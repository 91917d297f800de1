// cp.async: copies from global to shared memory that a thread starts and waits for later, in
// groups. The simulator copies as late as it may: until the wait the destination is NaN.
#pragma once

#include <cstddef>

#include "tests/sim_cuda/thread.h"

namespace sim {

// cp.async.shared.global: `bytes` of 4, 8 or 16, both addresses aligned to them. Of the source only
// source_bytes are read, the rest becomes 0. Fails where the destination is not shared memory.
void async_copy(void* destination, const void* source, std::size_t bytes, std::size_t source_bytes,
                Place place = Place::here());
// cp.async.commit_group: the thread's copies since the last commit are a group.
void async_commit();
// cp.async.wait_group: all of the thread's groups but the `left` latest are complete. Other threads
// see them after a barrier.
void async_wait(int left);

}  // namespace sim
