// The profile for programs, and for the page: schema version 1.
#include <nlohmann/json.hpp>

#include "train/config_keys.h"
#include "train/environment.h"
#include "train/profile/profile.h"

namespace duet {
namespace {

using Json = nlohmann::ordered_json;

Json op_name(const char* op) { return op == nullptr ? Json(nullptr) : Json(op); }

Json config_json(const RunConfig& run) {
  Json out = Json::object();
  for (const ConfigKey& key : config_keys()) {
    const std::string value = toml_value(key, run);
    if (!value.empty()) out[std::string(key.name)] = value;
  }
  return out;
}

Json owners_json(const std::vector<PeakOwner>& owners) {
  Json out = Json::array();
  for (const PeakOwner& o : owners) {
    out.push_back({{"path", o.path}, {"kind", name(o.kind)}, {"bytes", o.bytes}});
  }
  return out;
}

Json row_json(const ProfileRow& row, std::uint64_t peak, bool on_gpu) {
  const auto highest = [&](MemoryKind kind) { return row.highest[static_cast<std::size_t>(kind)]; };
  Json out;
  out["path"] = row.path;
  out["depth"] = row.depth;
  out["parameters"] = highest(MemoryKind::parameters);
  out["gradients"] = highest(MemoryKind::gradients);
  out["optimizer"] = highest(MemoryKind::optimizer);
  out["saved"] = highest(MemoryKind::saved);
  out["temporary"] = highest(MemoryKind::temporary);
  out["own_at_peak"] = row.own_at_peak;
  out["at_peak"] = row.at_peak;
  out["at_peak_bytes"] = total(row.at_peak);
  out["share"] = static_cast<double>(total(row.at_peak)) / static_cast<double>(peak);
  out["forward_ms"] = row.forward_ms;
  out["backward_ms"] = row.backward_ms;
  out["update_ms"] = row.update_ms;
  if (on_gpu) {
    for (std::size_t phase = 0; phase < kStepPhases; ++phase) {
      const std::string name(kPhaseNames[phase]);
      out[name + "_launches"] = row.work[phase].launches;
      out[name + "_bytes"] = row.work[phase].bytes;
    }
  }
  return out;
}

Json point_json(const MemoryPoint& point) {
  Json out = Json::array({point.ms});
  for (const std::uint64_t bytes : point.live) out.push_back(bytes);
  out.push_back(point.reserved);
  out.push_back(point.bytes);
  out.push_back(point.row);
  out.push_back(op_name(point.op));
  return out;
}

Json segment_json(const MapSegment& segment) {
  Json blocks = Json::array();
  for (const MapBlock& b : segment.blocks) {
    blocks.push_back(
        Json::array({b.bytes, b.free ? 1 : 0, static_cast<int>(b.kind), b.row, op_name(b.op)}));
  }
  return {{"bytes", segment.bytes}, {"blocks", blocks}};
}

}  // namespace

std::string profile_json(const Profile& p) {
  Json out;
  out["version"] = 1;
  out["planned"] = p.planned;
  if (p.planned) out["planned_for"] = planned_for_words(p.device);
  out["device"] = name(p.device.kernels());
  out["config"] = config_json(p.config);
  out["parameters"] = p.parameters;
  out["steps"] = p.steps;
  out["step_ms"] = p.step_ms;
  out["peak_bytes"] = p.peak_bytes;
  out["peak_reserved_bytes"] = p.peak_reserved;
  if (p.process_bytes > 0) out["process_bytes"] = p.process_bytes;
  out["unattributed_bytes"] = p.unattributed;
  out["process"] = nullptr;
  if (p.process) {
    out["process"] = {{"before_bytes", p.process->before},
                      {"peak_bytes", p.process->peak},
                      {"libraries_bytes", p.process->libraries}};
  }
  out["kinds"] = Json::array();
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    out["kinds"].push_back(name(static_cast<MemoryKind>(k)));
  }
  out["rows"] = Json::array();
  for (const ProfileRow& row : p.rows)
    out["rows"].push_back(row_json(row, p.peak_bytes, p.device.type == DeviceType::cuda));
  out["owners"] = owners_json(p.owners);
  out["grown"] = owners_json(p.grown);
  out["points"] = Json::array();
  for (const MemoryPoint& point : p.points) out["points"].push_back(point_json(point));
  out["peak_point"] = p.peak_point;
  out["spans"] = Json::array();
  for (const ScopeSpan& s : p.spans) {
    out["spans"].push_back(Json::array({s.begin_ms, s.end_ms, s.row, s.phase}));
  }
  out["map"] = Json::array();
  for (const MapSegment& segment : p.map) out["map"].push_back(segment_json(segment));
  // A path is bytes: what is no UTF-8 is shown as U+FFFD.
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace duet
