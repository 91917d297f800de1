#include "train/profile/profile.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "models/transformer.h"
#include "runtime/cpu/process_memory.h"
#include "runtime/launch_count.h"
#include "runtime/memory_replay.h"
#include "runtime/memory_trace.h"
#include "train/bench.h"
#include "train/device_choice.h"
#include "train/lab/statistics.h"
#include "train/profile/recorder.h"
#include "train/profile/scope_tree.h"
#include "train/run_checks.h"

namespace duet {
namespace {

std::size_t index(MemoryKind kind) { return static_cast<std::size_t>(kind); }
std::size_t index(StepPhase phase) { return static_cast<std::size_t>(phase); }

ScopeTree tree_of(const StepRecorder& record) {
  std::vector<ScopeId> scopes;
  for (const MemoryEvent& e : record.events()) scopes.push_back(e.scope);
  for (const StepRecorder::Step& step : record.steps()) {
    for (const StepRecorder::Span& span : step.spans) scopes.push_back(span.scope);
  }
  return ScopeTree(scopes);
}

// The live blocks of an allocator, event by event.
class LiveBlocks {
 public:
  // Calls change(block, sign) for what the event takes away (-1) and what it brings (+1).
  template <class F>
  void apply(const MemoryEvent& event, F&& change) {
    MemoryEvent block = event;
    const auto old = blocks_.find(event.block);
    if (old != blocks_.end()) {
      block.op = old->second.op;  // the one that made it
      change(old->second, -1);
      blocks_.erase(old);
    }
    if (event.type == MemoryEvent::Type::free) return;
    change(block, +1);
    blocks_.emplace(block.block, block);
  }
  const MemoryEvent& at(std::uint64_t number) const { return blocks_.at(number); }

 private:
  std::map<std::uint64_t, MemoryEvent> blocks_;
};

void add(std::uint64_t& to, std::uint64_t bytes, int sign) {
  to = sign > 0 ? to + bytes : to - bytes;
}

// Fills what follows from the events.
class MemoryWalk {
 public:
  MemoryWalk(const StepRecorder& record, const ScopeTree& tree, Profile& profile)
      : record_(record), tree_(tree), profile_(profile), own_(tree.rows().size()) {}

  void run() {
    profile_.rows.resize(tree_.rows().size());
    for (std::size_t r = 0; r < profile_.rows.size(); ++r) {
      profile_.rows[r].path = tree_.rows()[r].path;
      profile_.rows[r].depth = tree_.rows()[r].depth;
    }
    std::vector<KindBytes> with_inner(own_.size());
    std::uint64_t live = 0;
    const StepRecorder::Step& last = record_.steps().back();
    bool at_peak = false;
    for (std::size_t i = 0; i < record_.events().size(); ++i) {
      note_step_end(i);
      const MemoryEvent& event = record_.events()[i];
      // Marks still belong to the moment of the peak: what was just made is then known as saved.
      if (at_peak && event.type != MemoryEvent::Type::mark) {
        keep_peak(i - 1);
        at_peak = false;
      }
      blocks_.apply(event, [&](const MemoryEvent& block, int sign) {
        const std::size_t kind = index(block.kind);
        add(live, block.bytes, sign);
        add(own_[static_cast<std::size_t>(tree_.row_of(block.scope))][kind], block.bytes, sign);
        tree_.for_each_around(block.scope, [&](int r) {
          const auto row = static_cast<std::size_t>(r);
          add(with_inner[row][kind], block.bytes, sign);
          std::uint64_t& highest = profile_.rows[row].highest[kind];
          highest = std::max(highest, with_inner[row][kind]);
        });
      });
      profile_.peak_reserved = std::max<std::uint64_t>(profile_.peak_reserved, event.reserved);
      if (event.type == MemoryEvent::Type::allocate && live >= profile_.peak_bytes) {
        profile_.peak_bytes = live;
        at_peak = true;
      }
      if (i >= last.first_event && i < last.end_event) add_point(i, with_inner[0]);
    }
    note_step_end(record_.events().size());
    if (at_peak) keep_peak(record_.events().size() - 1);
    attribute_peak();
    list_grown();
    draw_map();
  }

 private:
  // Of the moment after event number `event`.
  void keep_peak(std::size_t event) {
    own_at_peak_ = own_;
    blocks_at_peak_ = blocks_;
    peak_event_ = event;
  }

  void note_step_end(std::size_t event) {
    for (const StepRecorder::Step& step : record_.steps()) {
      if (step.end_event == event) {
        before_last_ = std::exchange(at_end_, own_);
      }
    }
  }

  void list_grown() {
    for (std::size_t r = 0; r < before_last_.size(); ++r) {
      for (std::size_t k = 0; k < kMemoryKinds; ++k) {
        if (at_end_[r][k] <= before_last_[r][k]) continue;
        profile_.grown.push_back({profile_.rows[r].path, static_cast<MemoryKind>(k),
                                  at_end_[r][k] - before_last_[r][k]});
      }
    }
  }

  void add_point(std::size_t i, const KindBytes& live) {
    const MemoryEvent& event = record_.events()[i];
    MemoryPoint point;
    point.ms =
        profile_.planned ? static_cast<double>(profile_.points.size()) : record_.event_ms()[i];
    point.live = live;
    point.reserved = event.reserved;
    const auto bytes = static_cast<std::int64_t>(event.bytes);
    point.bytes = event.type == MemoryEvent::Type::allocate ? bytes
                  : event.type == MemoryEvent::Type::free   ? -bytes
                                                            : 0;
    point.row = tree_.row_of(event.scope);
    point.op = event.op;
    profile_.points.push_back(point);
    const auto& points = profile_.points;
    if (total(point.live) >= total(points[profile_.peak_point].live)) {
      profile_.peak_point = points.size() - 1;
    }
  }

  // Where each block lay follows from the policy, which decides on meta as it did on the device.
  void draw_map() {
    for (const MemoryMapSegment& segment : replay(record_.events(), peak_event_).map) {
      MapSegment& drawn = profile_.map.emplace_back();
      drawn.bytes = segment.bytes;
      for (const MemoryMapBlock& block : segment.blocks) {
        MapBlock& b = drawn.blocks.emplace_back();
        b.bytes = block.bytes;
        b.free = block.free;
        if (block.free) continue;
        const MemoryEvent& made = blocks_at_peak_.at(block.number);
        b.kind = made.kind;
        b.row = tree_.row_of(made.scope);
        b.op = made.op;
      }
    }
  }

  void attribute_peak() {
    for (std::size_t r = own_.size(); r-- > 0;) {
      ProfileRow& row = profile_.rows[r];
      row.own_at_peak = own_at_peak_[r];
      for (std::size_t k = 0; k < kMemoryKinds; ++k) {
        row.at_peak[k] += row.own_at_peak[k];
        if (const int parent = tree_.rows()[r].parent; parent >= 0) {
          profile_.rows[static_cast<std::size_t>(parent)].at_peak[k] += row.at_peak[k];
        }
        if (row.own_at_peak[k] > 0) {
          profile_.owners.push_back({row.path, static_cast<MemoryKind>(k), row.own_at_peak[k]});
        }
      }
    }
    std::stable_sort(profile_.owners.begin(), profile_.owners.end(),
                     [](const PeakOwner& a, const PeakOwner& b) { return a.bytes > b.bytes; });
    profile_.unattributed = total(profile_.rows[0].own_at_peak);
  }

  const StepRecorder& record_;
  const ScopeTree& tree_;
  Profile& profile_;
  LiveBlocks blocks_, blocks_at_peak_;
  std::size_t peak_event_ = 0;
  std::vector<KindBytes> own_, own_at_peak_;
  std::vector<KindBytes> at_end_, before_last_;  // live at the end of the last steps
};

// Milliseconds of each row and phase in one step, with the scopes inside.
std::vector<std::array<double, kStepPhases>> times_of(const StepRecorder::Step& step,
                                                      const ScopeTree& tree) {
  std::vector<std::array<double, kStepPhases>> times(tree.rows().size());
  for (const StepRecorder::Span& span : step.spans) {
    tree.for_each_around(span.scope, [&](int row) {
      times[static_cast<std::size_t>(row)][index(span.phase)] += span.end_ms - span.begin_ms;
    });
  }
  return times;
}

// The launches of one step, phase by phase.
class LaunchTally {
 public:
  ~LaunchTally() {
    if (phase_) stop_counting_launches();
  }
  LaunchTally() = default;
  LaunchTally(const LaunchTally&) = delete;
  LaunchTally& operator=(const LaunchTally&) = delete;

  void enter(StepPhase phase) {
    end_phase();
    phase_ = phase;
    start_counting_launches();
  }
  void end_phase() {
    if (!phase_) return;
    const std::vector<LaunchCount> counts = stop_counting_launches();
    std::vector<LaunchCount>& all = counts_[index(*phase_)];
    all.insert(all.end(), counts.begin(), counts.end());
    phase_.reset();
  }
  // A launch belongs to the row of its scope and to those around it.
  void add_to(Profile& profile) const {
    std::map<std::string_view, std::size_t> row_of;
    for (std::size_t r = 0; r < profile.rows.size(); ++r) row_of[profile.rows[r].path] = r;
    for (std::size_t phase = 0; phase < kStepPhases; ++phase) {
      for (const LaunchCount& count : counts_[phase]) {
        for (std::string_view path = count.scope;;) {
          if (const auto found = row_of.find(path); found != row_of.end()) {
            GpuWork& work = profile.rows[found->second].work[phase];
            work.launches += count.launches;
            work.bytes += count.bytes;
          }
          if (path.empty()) break;
          const std::size_t dot = path.rfind('.');
          path = path.substr(0, dot == std::string_view::npos ? 0 : dot);
        }
      }
    }
  }

 private:
  std::optional<StepPhase> phase_;
  std::array<std::vector<LaunchCount>, kStepPhases> counts_;
};

void add_times(const StepRecorder& record, const ScopeTree& tree, std::int64_t timed,
               Profile& profile) {
  const auto& steps = record.steps();
  const std::size_t first = steps.size() - static_cast<std::size_t>(timed);
  std::vector<double> whole;
  std::vector<std::vector<std::array<double, kStepPhases>>> times;
  for (std::size_t s = first; s < steps.size(); ++s) {
    whole.push_back(steps[s].ms);
    times.push_back(times_of(steps[s], tree));
  }
  profile.step_ms = sample_median(whole);
  for (std::size_t r = 0; r < profile.rows.size(); ++r) {
    std::array<double, kStepPhases> medians{};
    for (std::size_t phase = 0; phase < kStepPhases; ++phase) {
      std::vector<double> of_steps;
      for (const auto& step : times) of_steps.push_back(step[r][phase]);
      medians[phase] = sample_median(of_steps);
    }
    profile.rows[r].forward_ms = medians[0];
    profile.rows[r].backward_ms = medians[1];
    profile.rows[r].update_ms = medians[2];
  }
  for (const StepRecorder::Span& span : steps.back().spans) {
    profile.spans.push_back(
        {span.begin_ms, span.end_ms, tree.row_of(span.scope), kPhaseNames[index(span.phase)]});
  }
}

Profile profile_steps(const RunConfig& config, Device device, std::int64_t warmup,
                      std::int64_t steps, StepHooks hooks) {
  Profile profile;
  profile.config = config;
  profile.device = device;
  profile.planned = device.type == DeviceType::meta;
  profile.steps = steps;
  ProcessMemory process;
  process.before = resident_bytes();
  const std::uint64_t malloc_before = malloc_bytes();
  std::uint64_t malloc_peak = malloc_before;
  std::optional<MemoryTraceWriter> trace;
  if (!config.alloc_trace.empty()) {
    trace.emplace(config.alloc_trace, allocator(device).limit());
  }
  const PoisonScope poison(allocator(device), config.alloc_poison);
  StepRecorder record(device);
  LaunchTally launches;
  bool last_step = false;
  {
    StepBench bench(config, device);
    profile.parameters = bench.parameters();
    hooks.on_phase = [&, also = hooks.on_phase](StepPhase phase) {
      record.enter(phase);
      if (last_step) launches.enter(phase);
      if (also) also(phase);
      malloc_peak = std::max(malloc_peak, malloc_bytes());
    };
    for (std::int64_t i = 0; i < warmup + steps; ++i) {
      last_step = i + 1 == warmup + steps && device.type == DeviceType::cuda;
      record.begin_step();
      bench.step(hooks);
      record.end_step();
      launches.end_phase();
    }
  }
  malloc_peak = std::max(malloc_peak, malloc_bytes());
  process.peak = peak_resident_bytes();
  process.libraries = malloc_peak - malloc_before;
  record.check_complete();
  if (trace) {
    for (const MemoryEvent& event : record.events()) trace->on_memory(event);
    trace->finish();
  }
  const ScopeTree tree = tree_of(record);
  MemoryWalk(record, tree, profile).run();
  launches.add_to(profile);
  if (!profile.planned) {
    add_times(record, tree, steps, profile);
    profile.process = process;
  }
  return profile;
}

}  // namespace

std::uint64_t total(const KindBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

Profile measure_profile(const RunConfig& config, const ProfileOptions& options) {
  return profile_steps(config, training_device(config.device), options.warmup, options.steps,
                       options.hooks);
}

Profile plan_profile(const RunConfig& config) {
  const Device device = planning_device(config.device);
  check_kernels(config.model, device);
  return profile_steps(config, device, 0, 1, {});
}

}  // namespace duet
