// How the lanes of a warp meet.
#include "tests/sim_cuda/warp.h"

#include <bit>
#include <vector>

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

// Fails where the lanes of the mask can never meet.
void check_opening(const Thread& thread, const Meeting& meeting) {
  const Warp& warp = *thread.warp;
  const Place at = meeting.place;
  const auto first_lane = [](unsigned bits) { return std::countr_zero(bits); };
  if (const unsigned missing = meeting.mask & ~warp.existing; missing != 0) {
    fail("the mask %08x names lane %d, which the block of %u threads does not have, at %s:%d",
         meeting.mask, first_lane(missing), block_size.x * block_size.y * block_size.z, at.file,
         at.line);
  }
  if (const unsigned gone = meeting.mask & ~warp.alive; gone != 0) {
    fail("the mask %08x names lane %d, which has left the kernel, at %s:%d", meeting.mask,
         first_lane(gone), at.file, at.line);
  }
  for (const Meeting& other : warp.meetings) {
    const unsigned waiting = meeting.mask & other.arrived;
    if ((other.mask >> thread.lane & 1) == 0 || waiting == 0) continue;
    // They wait for this lane there, and this lane waits for them here.
    fail(
        "divergent warp operation: lane %u is at %s:%d with mask %08x, lane %d at %s:%d with mask "
        "%08x",
        thread.lane, at.file, at.line, meeting.mask, first_lane(waiting), other.place.file,
        other.place.line, other.mask);
  }
}

Meeting& meeting_of(const Thread& thread, const Meeting& wanted) {
  std::vector<Meeting>& meetings = thread.warp->meetings;
  for (Meeting& meeting : meetings) {
    if (meeting.mask == wanted.mask && meeting.function == wanted.function &&
        meeting.place == wanted.place) {
      return meeting;
    }
  }
  check_opening(thread, wanted);
  return meetings.emplace_back(wanted);
}

}  // namespace

SIM_NO_TSAN void warp_operation(unsigned mask, WarpFunction function, void* argument, Place place) {
  Thread& thread = current_thread();
  Warp& warp = *thread.warp;
  void* token = &warp.tokens[warp.operations % 2];
  tsan_release(token);
  enter_engine();
  const unsigned bit = 1U << thread.lane;
  if ((mask & bit) == 0) {
    fail("lane %u is not in the mask %08x of its own warp operation at %s:%d", thread.lane, mask,
         place.file, place.line);
  }
  Meeting& meeting = meeting_of(thread, {mask, 0, function, place});
  warp.arguments[thread.lane] = argument;
  meeting.arrived |= bit;
  if (meeting.arrived == mask) {
    meeting = warp.meetings.back();
    warp.meetings.pop_back();
    leave_engine(thread);
    tsan_acquire(token);
    function(warp.arguments, mask);
    tsan_release(token);
    enter_engine();
    ++warp.operations;
    for (unsigned others = mask & ~bit; others != 0; others &= others - 1) {
      make_ready(*warp.lanes[std::countr_zero(others)]);
    }
  } else {
    thread.place = place;
    thread.state = State::in_warp_operation;
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
