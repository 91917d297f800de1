// Chrome's trace events of the profiled step: what Perfetto and chrome://tracing open.
//
// Thread "phases" holds forward, backward and update; thread "layers" the scopes, nested like their
// paths. Counters: live bytes by kind, and reserved bytes. A plan has no time: there one event of
// memory is one millisecond.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "train/profile/profile.h"

namespace duet {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kProcess = 1, kPhases = 1, kLayers = 2;

// Whole nanoseconds, so that a slice and the slices inside it end at the same place.
std::int64_t nanoseconds(double ms) { return std::llround(ms * 1e6); }
double microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

struct Slice {
  std::int64_t begin = 0, end = 0;  // ns
  int thread = kLayers;
  std::size_t depth = 0;  // how many slices of the thread are around it
  std::string name;
};

Json event(const char* type, std::int64_t ns, const std::string& name) {
  return {{"ph", type}, {"pid", kProcess}, {"ts", microseconds(ns)}, {"name", name}};
}

Json named(const char* what, int thread, const std::string& name) {
  Json out{{"ph", "M"}, {"pid", kProcess}, {"name", what}, {"args", {{"name", name}}}};
  if (thread > 0) out["tid"] = thread;
  return out;
}

// The rows from the outermost scope to `row`, the whole left out.
std::vector<int> chain(const std::vector<int>& parents, int row) {
  std::vector<int> out;
  for (; row > 0; row = parents[static_cast<std::size_t>(row)]) out.push_back(row);
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<int> parents_of(const std::vector<ProfileRow>& rows) {
  std::vector<int> out, open;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    open.resize(static_cast<std::size_t>(rows[i].depth));
    out.push_back(open.empty() ? -1 : open.back());
    open.push_back(static_cast<int>(i));
  }
  return out;
}

// The flat spans of the profile as slices that contain each other: a scope lasts from its first
// span to its last, as long as only scopes inside it are at work between them.
class Nesting {
 public:
  explicit Nesting(const std::vector<ProfileRow>& rows) : rows_(rows), parents_(parents_of(rows)) {}

  std::vector<Slice> run(const std::vector<ScopeSpan>& spans) {
    for (const ScopeSpan& span : spans) {
      const std::int64_t begin = nanoseconds(span.begin_ms), end = nanoseconds(span.end_ms);
      if (end <= begin) continue;
      if (begin > now_ || span.phase != phase_) close(0);
      if (phase_ != span.phase) {
        end_phase();
        phase_ = span.phase;
        phase_begin_ = begin;
      }
      const std::vector<int> path = chain(parents_, span.row);
      std::size_t common = 0;
      while (common < open_.size() && common < path.size() && open_[common].row == path[common]) {
        ++common;
      }
      close(common);
      for (std::size_t i = common; i < path.size(); ++i) open_.push_back({path[i], begin});
      now_ = end;
    }
    close(0);
    end_phase();
    std::sort(slices_.begin(), slices_.end(), [](const Slice& a, const Slice& b) {
      return std::tie(a.begin, a.thread, a.depth) < std::tie(b.begin, b.thread, b.depth);
    });
    return std::move(slices_);
  }

 private:
  struct Open {
    int row;
    std::int64_t begin;
  };

  void close(std::size_t depth) {
    for (; open_.size() > depth; open_.pop_back()) {
      const std::string& path = rows_[static_cast<std::size_t>(open_.back().row)].path;
      slices_.push_back({open_.back().begin, now_, kLayers, open_.size(), path});
    }
  }
  void end_phase() {
    if (!phase_.empty()) slices_.push_back({phase_begin_, now_, kPhases, 0, std::string(phase_)});
  }

  const std::vector<ProfileRow>& rows_;
  std::vector<int> parents_;
  std::vector<Open> open_;
  std::vector<Slice> slices_;
  std::string_view phase_;
  std::int64_t phase_begin_ = 0, now_ = 0;
};

Json live_counter(const MemoryPoint& point) {
  Json out = event("C", nanoseconds(point.ms), "live bytes");
  Json& values = out["args"];
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    values[std::string(name(static_cast<MemoryKind>(k)))] = point.live[k];
  }
  return out;
}

}  // namespace

std::string profile_trace(const Profile& profile) {
  std::vector<Json> events;
  for (const Slice& slice : Nesting(profile.rows).run(profile.spans)) {
    Json out = event("X", slice.begin, slice.name);
    out["dur"] = microseconds(slice.end - slice.begin);
    out["tid"] = slice.thread;
    events.push_back(std::move(out));
  }
  std::uint64_t reserved = 0;
  for (std::size_t i = 0; i < profile.points.size(); ++i) {
    const MemoryPoint& point = profile.points[i];
    events.push_back(live_counter(point));
    if (i == 0 || point.reserved != reserved) {
      reserved = point.reserved;
      events.push_back(event("C", nanoseconds(point.ms), "reserved bytes"));
      events.back()["args"] = {{"reserved", reserved}};
    }
    if (i == profile.peak_point) {
      events.push_back(event("i", nanoseconds(point.ms), "peak"));
      events.back()["tid"] = kPhases;
      events.back()["s"] = "p";
      events.back()["args"] = {{"live bytes", total(point.live)}};
    }
  }
  // Slices that begin together stay in order, the outer one first.
  std::stable_sort(events.begin(), events.end(), [](const Json& a, const Json& b) {
    return a["ts"].get<double>() < b["ts"].get<double>();
  });
  Json all = Json::array(
      {named("process_name", 0, profile.planned ? "duet, planned: 1 ms is one event" : "duet"),
       named("thread_name", kPhases, "phases"), named("thread_name", kLayers, "layers")});
  for (Json& e : events) all.push_back(std::move(e));
  const Json out{{"displayTimeUnit", "ms"},
                 {"otherData",
                  {{"peak_bytes", profile.peak_bytes},
                   {"peak_reserved_bytes", profile.peak_reserved},
                   {"planned", profile.planned}}},
                 {"traceEvents", std::move(all)}};
  return out.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace duet
