#include "tools/profile_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/memory_trace.h"
#include "runtime/printable.h"
#include "tools/output.h"
#include "train/text.h"

namespace duet {
namespace {

constexpr std::size_t kOwnersShown = 20;

std::string count(std::uint64_t n) { return format_count(static_cast<std::int64_t>(n)); }

double ratio(std::size_t part, std::size_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// "213 MiB (223,346,688 bytes)"
std::string bytes(std::uint64_t n) {
  return fmt::format("{} ({} bytes)", format_bytes(n), count(n));
}

std::string recorded_line(const TraceReplay& replay) {
  if (!replay.recorded) return "nothing: the trace was cut off before its end";
  const TraceFigures& recorded = *replay.recorded;
  const MemoryReplay& now = replay.figures;
  if (recorded.peak_allocated == now.peak_allocated &&
      recorded.peak_reserved == now.peak_reserved) {
    return "the same peaks, to the byte";
  }
  return fmt::format("peak live {}, peak reserved {}: another policy, or memory was not empty",
                     count(recorded.peak_allocated), count(recorded.peak_reserved));
}

std::string text_of(const TraceReplay& replay, const std::string& path) {
  const MemoryReplay& r = replay.figures;
  std::string text = fmt::format(
      "trace          {}: {} events, {} allocations\n"
      "peak live      {}, after event {}\n"
      "peak reserved  {}, {:.3f} x peak live\n"
      "fragmentation  {} held and not live at the peak ({:.1f} % of {}), the largest piece {}\n"
      "segments       {} at the peak; the source was asked {} {}\n"
      "recorded       {}\n",
      printable(path, 400), count(r.events), count(r.allocations), bytes(r.peak_allocated),
      count(r.events == 0 ? 0 : r.peak_event + 1), bytes(r.peak_reserved),
      ratio(r.peak_reserved, r.peak_allocated), format_bytes(r.fragmentation()),
      100 * ratio(r.fragmentation(), r.reserved_at_peak), format_bytes(r.reserved_at_peak),
      format_bytes(r.largest_free_at_peak), r.map.size(), count(r.raw_allocations),
      plural(static_cast<std::int64_t>(r.raw_allocations), "time"), recorded_line(replay));
  if (replay.limit != 0) text += fmt::format("limit          {}\n", bytes(replay.limit));
  if (!replay.owners.empty()) text += "largest owners at the peak\n";
  for (std::size_t i = 0; i < std::min(replay.owners.size(), kOwnersShown); ++i) {
    const MemoryOwner& owner = replay.owners[i];
    text += fmt::format("  {:>10}  {:<18}  {}\n", format_bytes(owner.bytes), name(owner.kind),
                        owner.path.empty() ? "(outside any scope)" : printable(owner.path, 400));
  }
  if (replay.owners.size() > kOwnersShown) {
    text += fmt::format("  and {} more\n", replay.owners.size() - kOwnersShown);
  }
  return text;
}

nlohmann::ordered_json json_of(const TraceReplay& replay, const std::string& path) {
  const MemoryReplay& r = replay.figures;
  nlohmann::ordered_json out;
  out["trace"] = path;
  out["events"] = r.events;
  out["allocations"] = r.allocations;
  out["raw_allocations"] = r.raw_allocations;
  out["limit_bytes"] = replay.limit;
  out["peak_bytes"] = r.peak_allocated;
  out["peak_reserved_bytes"] = r.peak_reserved;
  out["peak_event"] = r.peak_event;
  out["reserved_at_peak_bytes"] = r.reserved_at_peak;
  out["fragmentation_bytes"] = r.fragmentation();
  out["largest_free_bytes"] = r.largest_free_at_peak;
  if (replay.recorded) {
    out["recorded"] = {{"peak_bytes", replay.recorded->peak_allocated},
                       {"peak_reserved_bytes", replay.recorded->peak_reserved}};
  }
  out["owners"] = nlohmann::ordered_json::array();
  for (const MemoryOwner& owner : replay.owners) {
    out["owners"].push_back(
        {{"path", owner.path}, {"kind", name(owner.kind)}, {"bytes", owner.bytes}});
  }
  out["segments"] = nlohmann::ordered_json::array();
  for (const MemoryMapSegment& segment : r.map) {
    nlohmann::ordered_json blocks = nlohmann::ordered_json::array();
    for (const MemoryMapBlock& block : segment.blocks) {
      blocks.push_back({{"bytes", block.bytes}, {"block", block.number}});  // 0: free
    }
    out["segments"].push_back({{"bytes", segment.bytes}, {"blocks", std::move(blocks)}});
  }
  return out;
}

}  // namespace

int profile_replay(const std::string& path, const AnswerFile& json) {
  const TraceReplay replay = replay_trace(path);
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  write_answer(json, json_of(replay, path).dump(2, ' ', false, kReplace) + "\n");
  write_out(text_of(replay, path));
  return 0;
}

}  // namespace duet
