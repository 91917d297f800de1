// __syncthreads and its three voting forms.
#pragma once

#include "tests/sim_cuda/thread.h"

namespace sim {

// Returns when all threads of the block that have not left the kernel arrived: how many they were,
// and how many of them brought a true vote.
struct Arrivals {
  unsigned threads;
  unsigned votes;
};
Arrivals sync_threads(bool vote, Place place);

}  // namespace sim
