#include "train/lab/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/file_system.h"
#include "train/text.h"

namespace duet {
namespace {

std::string join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

bool any_single_pair(const LabSummary& summary) {
  return std::any_of(summary.arms.begin() + 1, summary.arms.end(), [](const ArmSummary& arm) {
    return !arm.differences.empty() && arm.differences[0].pairs == 1;
  });
}

}  // namespace

std::string report_number(double value) {
  return std::isfinite(value) ? fmt::format("{:.4f}", value) : "-";
}

std::string report_spread(const SeedMean& m) {
  if (m.n == 0) return "-";
  if (m.n == 1) return report_number(m.mean);
  return fmt::format("{:.4f} ± {:.4f}", m.mean, m.deviation);
}

std::string report_difference(const PairedDifference& d) {
  if (d.pairs == 0) return "-";
  if (!d.half_width) return fmt::format("{:+.4f} (1 pair)", d.mean);
  return fmt::format("{:+.4f} [{:+.4f}, {:+.4f}]", d.mean, d.mean - *d.half_width,
                     d.mean + *d.half_width);
}

std::string report_ratio(const std::vector<double>& ratios) {
  if (ratios.empty()) return "-";
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  if (ratios.size() == 1) return fmt::format("{:.2f}", ratios[0]);
  return fmt::format("{:.2f} ({:.2f} to {:.2f})", sample_mean(ratios), *low, *high);
}

std::string report_step_time(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  return seconds >= 1 ? fmt::format("{:.2f} s", seconds) : fmt::format("{:.1f} ms", seconds * 1e3);
}

std::string report_status(const RunSummary& run) {
  if (run.diverged && run.complete) return "diverged";
  if (run.complete) return "done";
  if (run.diverged) return fmt::format("diverged at step {} of {}", run.step, run.max_iters);
  if (run.step == 0) return "not started";
  return fmt::format("step {} of {}", run.step, run.max_iters);
}

std::vector<std::string> report_notes(const LabSummary& summary) {
  const ExperimentRecord& record = summary.record;
  std::vector<std::string> notes;
  notes.push_back(
      "± is the standard deviation over seeds. A difference is an arm minus " +
      record.arms[0].name +
      " of the same seed, averaged over seeds; in brackets its 95 % interval (Student's t over the "
      "paired differences). An interval that holds 0 does not tell the arms apart.");
  notes.push_back(
      "Runs of a seed start from the same numbers in every weight they share and read the same "
      "batches.");
  if (!record.unpaired_keys.empty()) {
    notes.push_back("Not so here: the arms differ in " + join(record.unpaired_keys) +
                    ", so they do not read the same batches, and the differences include that.");
  }
  if (any_single_pair(summary)) {
    notes.push_back("One pair of runs gives no interval: more seeds are needed to judge it.");
  }
  if (summary.complete_runs() + summary.diverged_early() < summary.runs.size()) {
    notes.push_back(
        fmt::format("Not finished: {} of {} runs are done. Numbers are of those; curves "
                    "of an arm without any are of what it has.",
                    summary.complete_runs(), summary.runs.size()));
  }
  std::vector<std::string> stopped, no_number;
  for (const RunSummary& run : summary.runs) {
    if (run.diverged) (run.complete ? no_number : stopped).push_back(run.name);
  }
  if (!stopped.empty()) {
    notes.push_back("Diverged, and left out: " + join(stopped) +
                    ". Such a run stopped because its numbers were not finite (exit code 4).");
  }
  if (!no_number.empty()) {
    notes.push_back(
        "Left out, because the last evaluation is not a finite number: " + join(no_number) + ".");
  }
  notes.push_back(
      "Seconds per step is the median over the log lines of a run, without evaluations; its ratio "
      "is to the run of the same seed. Runs take turns on one machine: what else it did shows.");
  if (summary.machines.size() > 1) {
    notes.push_back(
        "The runs were not all made alike (see the machines): their times do not "
        "compare.");
  }
  return notes;
}

std::string report_progress(const LabSummary& summary) {
  std::string out = fmt::format("{} of {} runs done", summary.complete_runs(), summary.runs.size());
  if (const std::size_t n = summary.diverged_early(); n > 0) out += fmt::format(", {} diverged", n);
  return out;
}

LabSummary write_reports(const ExperimentRecord& record) {
  LabSummary summary = summarize(record);
  file_system().replace_file(record.directory + "/report.md", markdown_report(summary));
  file_system().replace_file(record.directory + "/report.html", html_report(summary));
  return summary;
}

}  // namespace duet
