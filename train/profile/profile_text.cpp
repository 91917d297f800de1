// The profile on a terminal.
#include <fmt/format.h>

#include <algorithm>

#include "models/enum_names.h"
#include "runtime/printable.h"
#include "train/environment.h"
#include "train/profile/profile.h"
#include "train/text.h"

namespace duet {
namespace {

constexpr std::size_t kOwnersShown = 10;

std::string bytes_cell(std::uint64_t bytes) { return bytes == 0 ? "-" : format_bytes(bytes); }
std::string ms_cell(double ms) { return ms < 0.005 ? "-" : fmt::format("{:.2f}", ms); }

// "  attn" for "blocks.3.attn".
std::string row_name(const ProfileRow& row) {
  if (row.path.empty()) return "whole step";
  const std::size_t dot = row.path.rfind('.');
  const std::string name = dot == std::string::npos ? row.path : row.path.substr(dot + 1);
  return std::string(static_cast<std::size_t>(2 * row.depth), ' ') + printable(name);
}

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string heading(const Profile& p) {
  const RunConfig& run = p.config;
  const ModelConfig& m = run.model;
  std::string text = fmt::format(
      "{} {} x {} x {} heads, vocabulary {}, {} parameters, coupling {}, recompute {}\n"
      "batch {} x {} x {} accumulated, {}: {}\n",
      enum_name(m.family), m.n_layer, m.n_embd, m.n_head, format_count(m.vocab_size),
      format_count(p.parameters), enum_name(m.coupling), enum_name(m.recompute), run.batch_size,
      m.block_size, run.gradient_accumulation_steps, run.dtype,
      p.planned ? fmt::format("planned for {}, nothing was run", planned_for_words(p.device))
                : counted(p.steps, "step") + " measured");
  text += fmt::format("peak {} live ({} bytes), {} reserved", format_bytes(p.peak_bytes),
                      format_count(static_cast<std::int64_t>(p.peak_bytes)),
                      format_bytes(p.peak_reserved));
  if (!p.planned) text += fmt::format("; {:.1f} ms a step on {}", p.step_ms, name(p.device.type));
  return text + "\n";
}

std::string tree_table(const Profile& p, int depth) {
  std::size_t width = 10;
  for (const ProfileRow& row : p.rows) {
    if (row.depth <= depth) width = std::max(width, row_name(row).size());
  }
  std::string text =
      fmt::format("\n{:<{}}  {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>6}", "", width,
                  "parameters", "gradients", "optimizer", "saved", "temporary", "at peak", "share");
  if (!p.planned)
    text += fmt::format(" {:>10} {:>11} {:>9}", "forward ms", "backward ms", "update ms");
  text += "\n";
  for (const ProfileRow& row : p.rows) {
    if (row.depth > depth) continue;
    const auto highest = [&](MemoryKind kind) {
      return bytes_cell(row.highest[static_cast<std::size_t>(kind)]);
    };
    const std::uint64_t at_peak = total(row.at_peak);
    text += fmt::format("{:<{}}  {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>5.1f}%",
                        row_name(row), width, highest(MemoryKind::parameters),
                        highest(MemoryKind::gradients), highest(MemoryKind::optimizer),
                        highest(MemoryKind::saved), highest(MemoryKind::temporary),
                        bytes_cell(at_peak), share(at_peak, p.peak_bytes));
    if (!p.planned) {
      text += fmt::format(" {:>10} {:>11} {:>9}", ms_cell(row.forward_ms), ms_cell(row.backward_ms),
                          ms_cell(row.update_ms));
    }
    text += "\n";
  }
  return text;
}

// What each layer gave the GPU in one step.
std::string launch_table(const Profile& p, int depth) {
  if (p.device.type != DeviceType::cuda) return "";
  std::size_t width = 10;
  for (const ProfileRow& row : p.rows) {
    if (row.depth <= depth) width = std::max(width, row_name(row).size());
  }
  std::string text =
      fmt::format("\nlaunches of a step, and the bytes handed to them\n{:<{}}", "", width);
  for (const std::string_view phase : kPhaseNames) text += fmt::format("  {:>20}", phase);
  text += "\n";
  for (const ProfileRow& row : p.rows) {
    if (row.depth > depth) continue;
    text += fmt::format("{:<{}}", row_name(row), width);
    for (const GpuWork& work : row.work) {
      text += work.launches == 0
                  ? fmt::format("  {:>20}", "-")
                  : fmt::format("  {:>7} {:>12}", work.launches, bytes_cell(work.bytes));
    }
    text += "\n";
  }
  return text;
}

std::string owner_list(const Profile& p) {
  std::string text = "\nlive at the peak, largest first\n";
  std::uint64_t rest = 0;
  std::size_t more = 0;
  for (std::size_t i = 0; i < p.owners.size(); ++i) {
    const PeakOwner& owner = p.owners[i];
    if (i >= kOwnersShown) {
      rest += owner.bytes;
      ++more;
      continue;
    }
    text += fmt::format("{:>11}  {:>5.1f}%  {:<18}  {}\n", format_bytes(owner.bytes),
                        share(owner.bytes, p.peak_bytes), name(owner.kind),
                        owner.path.empty() ? "(outside any scope)" : printable(owner.path));
  }
  if (more > 0) {
    text += fmt::format("{:>11}  {:>5.1f}%  {} more\n", format_bytes(rest),
                        share(rest, p.peak_bytes), more);
  }
  return text;
}

std::string grown_lines(const Profile& p) {
  std::string text;
  for (const PeakOwner& owner : p.grown) {
    text += fmt::format("LEAK: {} more {} of {} are live after each step\n",
                        format_bytes(owner.bytes), name(owner.kind),
                        owner.path.empty() ? "(outside any scope)" : printable(owner.path));
  }
  return text.empty() ? text : "\n" + text;
}

std::string process_lines(const Profile& p) {
  std::string text = fmt::format("\nunattributed {} of {} bytes\n",
                                 format_count(static_cast<std::int64_t>(p.unattributed)),
                                 format_count(static_cast<std::int64_t>(p.peak_bytes)));
  if (p.process_bytes > 0) {
    text += fmt::format("process      at most {} of a run: tensors, text, libraries, threads\n",
                        format_bytes(p.process_bytes));
  }
  if (!p.process) return text;
  return text +
         fmt::format(
             "libraries    {} held by malloc beside ours (oneDNN's scratch, this record)\n"
             "process      {} resident at most: {} before the model, {} reserved, libraries\n",
             format_bytes(p.process->libraries), format_bytes(p.process->peak),
             format_bytes(p.process->before), format_bytes(p.peak_reserved));
}

}  // namespace

std::string profile_text(const Profile& profile, int depth) {
  return heading(profile) + tree_table(profile, depth) + launch_table(profile, depth) +
         owner_list(profile) + grown_lines(profile) + process_lines(profile);
}

}  // namespace duet
