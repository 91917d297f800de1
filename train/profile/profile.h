// Where the memory and the time of a training step go, by layer.
//
//   Profile profile = measure_profile(config, {.steps = 3});   // or plan_profile(config): on meta
//   write_out(profile_text(profile));
//
// Every figure of memory follows from the allocator's own events, so the rows sum to its peak to
// the byte. Times are wall time between entering and leaving a memory scope.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/memory_scope.h"
#include "train/trainer.h"

namespace duet {

// Bytes of each MemoryKind.
using KindBytes = std::array<std::uint64_t, kMemoryKinds>;
std::uint64_t total(const KindBytes& bytes);

inline constexpr std::size_t kStepPhases = 3;
inline constexpr std::array<std::string_view, kStepPhases> kPhaseNames{"forward", "backward",
                                                                       "update"};

// Kernels and products, and the bytes of the views that they were handed.
struct GpuWork {
  std::uint64_t launches = 0, bytes = 0;
};

// One memory scope: a layer, or a part of one.
struct ProfileRow {
  std::string path;         // "blocks.3.attn.coupling"; "" for the whole
  int depth = 0;            // 0 for the whole, 1 for "blocks"
  KindBytes own_at_peak{};  // live at the global peak, without the scopes inside
  KindBytes at_peak{};      // the same with them: the children's and own_at_peak
  KindBytes highest{};      // with them: the most of each kind that was ever live at once
  double forward_ms = 0;    // of one step (median), with the scopes inside; 0 if planned
  double backward_ms = 0;
  double update_ms = 0;
  // On a GPU: what the last step gave it, with the scopes inside, by phase (kPhaseNames).
  std::array<GpuWork, kStepPhases> work{};
};

// What was live at the global peak, of one scope and kind.
struct PeakOwner {
  std::string path;  // "" for bytes outside any scope: `unattributed`
  MemoryKind kind = MemoryKind::temporary;
  std::uint64_t bytes = 0;
};

// One event of the profiled step, for the timeline.
struct MemoryPoint {
  double ms = 0;               // since the step began; the event's number if planned
  KindBytes live{};            // after it
  std::uint64_t reserved = 0;  // after it
  std::int64_t bytes = 0;      // of the block: > 0 allocated, < 0 freed, 0: its kind changed
  int row = 0;                 // the block's owner, in Profile::rows
  const char* op = nullptr;    // the op at work; null outside ops
};

// A scope was at work without a break, inner scopes aside.
struct ScopeSpan {
  double begin_ms = 0, end_ms = 0;
  int row = 0;
  std::string_view phase;  // forward, backward, update
};

// The segments of the allocator at the peak, in order of their making; blocks in order of address.
struct MapBlock {
  std::uint64_t bytes = 0;
  bool free = false;
  MemoryKind kind = MemoryKind::temporary;  // of a live one, like the rest
  int row = 0;
  const char* op = nullptr;  // that allocated it
};
struct MapSegment {
  std::uint64_t bytes = 0;
  std::vector<MapBlock> blocks;
};

// What the allocator does not see.
struct ProcessMemory {
  std::uint64_t before = 0;     // resident before the model was made: the program itself
  std::uint64_t peak = 0;       // highest resident of the process since
  std::uint64_t libraries = 0;  // malloc's: oneDNN's scratch and the program's own records
};

struct Profile {
  RunConfig config;      // resolved
  Device device;         // meta if planned: for the device that config.device names
  bool planned = false;  // walked on meta: no times, no process memory
  std::int64_t parameters = 0;
  std::int64_t steps = 0;           // timed ones
  std::uint64_t peak_bytes = 0;     // live bytes at the peak: the sum of rows[0].at_peak
  std::uint64_t peak_reserved = 0;  // held from the system at most
  std::uint64_t process_bytes = 0;  // of the whole process, planned for the CPU: at most; else 0
  std::uint64_t unattributed = 0;   // of peak_bytes: outside any scope
  double step_ms = 0;               // median; 0 if planned
  std::vector<ProfileRow> rows;     // the whole first, then the tree in pre-order
  std::vector<PeakOwner> owners;    // at the peak, largest first; their sum is peak_bytes
  // What is live at the end of the last step and was not at the end of the one before: a leak.
  std::vector<PeakOwner> grown;
  std::vector<MemoryPoint> points;  // of the last step
  std::size_t peak_point = 0;       // where in `points` the step is at its highest
  std::vector<ScopeSpan> spans;     // of the last step
  std::vector<MapSegment> map;      // at the peak
  std::optional<ProcessMemory> process;
};

struct ProfileOptions {
  std::int64_t warmup = 1;
  std::int64_t steps = 3;
  StepHooks hooks{};
};

// Runs training steps on random tokens. Throws Error(usage) if the configuration does not fit
// together, Error(memory) if it does not fit in.
Profile measure_profile(const RunConfig& config, const ProfileOptions& options = {});
// Walks one step on meta: needs neither the memory nor the device it speaks of.
Profile plan_profile(const RunConfig& config);

std::string profile_text(const Profile& profile, int depth);  // for a terminal; rows up to `depth`
std::string profile_json(const Profile& profile);
std::string profile_html(const Profile& profile);   // one page that needs nothing else
std::string profile_trace(const Profile& profile);  // Chrome's trace events, for Perfetto

}  // namespace duet
