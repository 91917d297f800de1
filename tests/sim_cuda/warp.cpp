// How the lanes of a warp meet.
#include "tests/sim_cuda/warp.h"

namespace sim {
namespace {

struct VoteLane {
  bool vote;
  unsigned result;
};

void carry_out_ballot(void* const* lanes, unsigned mask) {
  unsigned votes = 0;
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((mask >> lane & 1) != 0 && static_cast<const VoteLane*>(lanes[lane])->vote)
      votes |= 1U << lane;
  }
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((mask >> lane & 1) != 0) static_cast<VoteLane*>(lanes[lane])->result = votes;
  }
}

void carry_out_nothing(void* const*, unsigned) {}

// Whether `other`, lane `lane` of the mask, waits in the operation that `thread` just came to.
// Fails where it never can.
bool has_arrived(const Thread& thread, const Thread* other, unsigned lane) {
  const Place at = thread.place;
  if (!other) {
    fail("the mask %08x names lane %u, which the block of %u threads does not have, at %s:%d",
         thread.mask, lane, block_size.x * block_size.y * block_size.z, at.file, at.line);
  }
  if (other->state == State::finished) {
    fail("the mask %08x names lane %u, which has left the kernel, at %s:%d", thread.mask, lane,
         at.file, at.line);
  }
  if (other->state != State::in_warp_operation) return false;
  if (other->mask == thread.mask && other->function == thread.function && other->place == at)
    return true;
  if ((other->mask >> thread.lane & 1) != 0) {  // each waits for the other
    fail(
        "divergent warp operation: lane %u is at %s:%d with mask %08x, lane %u at %s:%d with mask "
        "%08x",
        thread.lane, at.file, at.line, thread.mask, lane, other->place.file, other->place.line,
        other->mask);
  }
  return false;  // among others, after which it may come
}

}  // namespace

void warp_operation(unsigned mask, WarpFunction function, void* argument, Place place) {
  Thread& thread = current_thread();
  Warp& warp = *thread.warp;
  void* token = &warp.tokens[warp.operations % 2];
  tsan_release(token);
  enter_engine();
  if ((mask >> thread.lane & 1) == 0) {
    fail("lane %u is not in the mask %08x of its own warp operation at %s:%d", thread.lane, mask,
         place.file, place.line);
  }
  thread.place = place;
  thread.mask = mask;
  thread.function = function;
  thread.argument = argument;
  thread.state = State::in_warp_operation;
  warp.waiting |= 1U << thread.lane;
  void* arguments[kWarpLanes] = {};
  bool all = true;
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    if (has_arrived(thread, warp.lanes[lane], lane)) {
      arguments[lane] = warp.lanes[lane]->argument;
    } else {
      all = false;
    }
  }
  if (all) {
    leave_engine(thread);
    tsan_acquire(token);
    function(arguments, mask);
    tsan_release(token);
    enter_engine();
    ++warp.operations;
    warp.waiting &= ~mask;
    thread.state = State::running;
    for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
      if ((mask >> lane & 1) != 0 && lane != thread.lane) make_ready(*warp.lanes[lane]);
    }
  } else {
    wait_for_turn(thread);
  }
  leave_engine(thread);
  tsan_acquire(token);
}

void sync_warp(unsigned mask, Place place) {
  warp_operation(mask, carry_out_nothing, nullptr, place);
}

unsigned ballot(unsigned mask, bool vote, Place place) {
  VoteLane lane{vote, 0};
  warp_operation(mask, carry_out_ballot, &lane, place);
  return lane.result;
}

unsigned first_of_segment(int width, Place place) {
  const bool power_of_two = width > 0 && (width & (width - 1)) == 0;
  if (!power_of_two || width > static_cast<int>(kWarpLanes)) {
    fail("shuffle of width %d, expected 1, 2, 4, 8, 16 or 32, at %s:%d", width, place.file,
         place.line);
  }
  return current_thread().lane & ~static_cast<unsigned>(width - 1);
}

}  // namespace sim
