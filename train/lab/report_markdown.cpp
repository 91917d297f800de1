// The Markdown report.
#include <fmt/format.h>

#include "runtime/printable.h"
#include "train/lab/report.h"
#include "train/text.h"

namespace duet {
namespace {

std::string table_row(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (const std::string& cell : cells) out += concat(" ", cell, " |");
  return out + "\n";
}

std::string rule(std::size_t columns, std::size_t texts) {
  std::string out = "|";
  for (std::size_t i = 0; i < columns; ++i) out += i < texts ? " --- |" : " ---: |";
  return out + "\n";
}

// A path or a setting as code; a backquote in it must not end the code.
std::string code(const std::string& text) {
  const char* fence = text.find('`') == std::string::npos ? "`" : "``";
  return concat(fence, text, fence);
}

std::string runs_table(const LabSummary& s) {
  std::vector<std::string> head = {"run", "state"};
  for (const LabMetric& m : s.metrics) head.push_back(m.title);
  head.insert(head.end(), {"per step", "time"});
  std::string out = table_row(head) + rule(head.size(), 2);
  for (const RunSummary& run : s.runs) {
    std::vector<std::string> cells = {run.name, report_status(run)};
    for (const double v : run.finals) cells.push_back(report_number(v));
    cells.push_back(report_step_time(run.seconds_per_step));
    cells.push_back(run.step == 0 ? "-" : format_duration(run.seconds));
    out += table_row(cells);
  }
  return out;
}

}  // namespace

std::string report_table(const LabSummary& s) {
  std::vector<std::string> head = {"arm", "parameters", "runs"};
  for (const LabMetric& m : s.metrics) head.push_back(m.title);
  if (!s.metrics.empty()) head.push_back("difference, " + s.metrics[0].title);
  head.insert(head.end(), {"per step", "relative time"});
  std::string out = table_row(head) + rule(head.size(), 1);
  const std::size_t seeds = s.record.seeds.size();
  for (std::size_t a = 0; a < s.arms.size(); ++a) {
    const ArmSummary& arm = s.arms[a];
    std::size_t done = 0;
    for (const RunSummary& run : s.runs) done += run.arm == a && run.complete ? 1 : 0;
    std::vector<std::string> cells = {arm.arm.name, format_count(arm.arm.parameters),
                                      fmt::format("{}/{}", done, seeds)};
    for (const SeedMean& m : arm.finals) cells.push_back(report_spread(m));
    if (!s.metrics.empty()) {
      cells.push_back(a == 0 ? "(reference)" : report_difference(arm.differences[0]));
    }
    cells.push_back(report_step_time(arm.seconds_per_step));
    cells.push_back(a == 0 ? "1" : report_ratio(arm.time_ratios));
    out += table_row(cells);
  }
  return out;
}

std::string markdown_report(const LabSummary& s) {
  const ExperimentRecord& record = s.record;
  std::string out =
      fmt::format("# {}\n\n{} arms x {} seeds, {}.\n\n", printable(record.directory, 4096),
                  record.arms.size(), record.seeds.size(), report_progress(s));
  out += report_table(s) + "\n";
  for (const std::string& note : report_notes(s)) out += concat("- ", note, "\n");
  out += "\nCurves: report.html.\n\n## Runs\n\n" + runs_table(s);
  out += "\n## How it was made\n\n```\n";
  for (const std::string& word : record.command_line) {
    out += concat(out.back() == '\n' ? "" : " ", printable(word, 4096));
  }
  out += "\n```\n\nSettings of all runs:\n\n```toml\n" + record.common + "```\n\nArms:\n\n";
  for (const ExperimentArm& arm : record.arms) {
    std::string changes = arm.changes;
    while (!changes.empty() && changes.back() == '\n') changes.pop_back();
    for (std::size_t at = 0; (at = changes.find('\n', at)) != std::string::npos; at += 2) {
      changes.replace(at, 1, "; ");
    }
    out += fmt::format("- {}: {}\n", arm.name, changes.empty() ? "no change" : code(changes));
  }
  for (const FileIdentity& file : record.files) {
    out += fmt::format("- data {}: {} bytes, XXH3 {}\n", code(printable(file.path, 4096)),
                       format_count(static_cast<std::int64_t>(file.bytes)), printable(file.hash));
  }
  for (const std::string& machine : s.machines) out += concat("- machine: ", machine, "\n");
  return out;
}

}  // namespace duet
