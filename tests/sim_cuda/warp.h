// What the 32 lanes of a warp do together: shuffles, votes, __syncwarp. Every lane of the mask
// arrives with what it brings; the last to arrive carries the operation out for all.
#pragma once

#include <cstddef>
#include <type_traits>

#include "tests/sim_cuda/engine.h"
#include "tests/sim_cuda/thread.h"

namespace sim {

// Returns when all lanes of the mask have come to this operation and it was carried out. Fails if
// the lane is not in its own mask, if the mask names a lane that left or that the block does not
// have, and if lanes of the mask come to different operations.
void warp_operation(unsigned mask, WarpFunction function, void* argument, Place place);

void sync_warp(unsigned mask, Place place);
unsigned ballot(unsigned mask, bool vote, Place place);  // bits of the lanes with a true vote

template <class T>
struct ShuffleLane {
  T value;   // that others may read
  T result;  // read from the lane `source`
  unsigned source;
  Place place;
};

template <class T>
void carry_out_shuffle(void* const* lanes, unsigned mask) {
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    auto& reader = *static_cast<ShuffleLane<T>*>(lanes[lane]);
    if ((mask >> reader.source & 1) == 0) {
      fail("lane %u shuffles from lane %u, which is not in the mask %08x, at %s:%d", lane,
           reader.source, mask, reader.place.file, reader.place.line);
    }
    reader.result = static_cast<const ShuffleLane<T>*>(lanes[reader.source])->value;
  }
}

template <class T>
T shuffle(unsigned mask, T value, unsigned source, Place place) {
  static_assert((std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8)) ||
                    (std::is_class_v<T> && (sizeof(T) == 2 || sizeof(T) == 4)),
                "CUDA shuffles numbers of 4 or 8 bytes, half and bfloat16");
  ShuffleLane<T> lane{value, value, source, place};
  warp_operation(mask, carry_out_shuffle<T>, &lane, place);
  return lane.result;
}

// First lane of this lane's segment of `width` lanes. Fails unless width is a power of two up
// to 32.
unsigned first_of_segment(int width, Place place);

// As CUDA's: a lane whose source lies outside its segment reads itself.
template <class T>
T shuffle_index(unsigned mask, T value, int source, int width, Place place) {
  const unsigned first = first_of_segment(width, place);
  const unsigned within = static_cast<unsigned>(source) & static_cast<unsigned>(width - 1);
  return shuffle(mask, value, first + within, place);
}
template <class T>
T shuffle_up(unsigned mask, T value, unsigned delta, int width, Place place) {
  const unsigned lane = current_thread().lane;
  const bool inside = lane - first_of_segment(width, place) >= delta;
  return shuffle(mask, value, inside ? lane - delta : lane, place);
}
template <class T>
T shuffle_down(unsigned mask, T value, unsigned delta, int width, Place place) {
  const unsigned lane = current_thread().lane;
  const unsigned left = first_of_segment(width, place) + static_cast<unsigned>(width) - lane;
  return shuffle(mask, value, delta < left ? lane + delta : lane, place);
}
template <class T>
T shuffle_xor(unsigned mask, T value, int lane_mask, int width, Place place) {
  const unsigned lane = current_thread().lane;
  const unsigned end = first_of_segment(width, place) + static_cast<unsigned>(width);
  const unsigned source = lane ^ static_cast<unsigned>(lane_mask);
  return shuffle(mask, value, source < end ? source : lane, place);
}

}  // namespace sim
