// The two reports of an experiment: Markdown, and one offline HTML page with charts.
#pragma once

#include <string>

#include "train/lab/summary.h"

namespace duet {

std::string markdown_report(const LabSummary& summary);
std::string html_report(const LabSummary& summary);

// Reads DIR's record and logs and writes DIR/report.md and DIR/report.html, each whole or not at
// all. Returns what the reports show.
LabSummary write_reports(const ExperimentRecord& record);

std::string report_table(const LabSummary& summary);  // one row per arm, in Markdown

// Pieces that both reports share: numbers as text, and what a reader must know beside the numbers.
std::string report_number(double value);                      // "2.7190"; "-" for none
std::string report_spread(const SeedMean& mean);              // "2.7190 ± 0.0021"
std::string report_difference(const PairedDifference& d);     // "-0.0123 [-0.0150, -0.0096]"
std::string report_ratio(const std::vector<double>& ratios);  // "1.04 (1.02 to 1.06)"
std::string report_step_time(double seconds);                 // "48.1 ms"
std::string report_status(const RunSummary& run);  // "done", "step 120 of 489", "diverged at ..."
std::string report_progress(const LabSummary& summary);  // "5 of 6 runs done, 1 diverged"
std::vector<std::string> report_notes(const LabSummary& summary);

}  // namespace duet
