// What an experiment's runs say, arm by arm: the numbers behind both reports.
#pragma once

#include "train/lab/experiment.h"
#include "train/lab/run_log.h"
#include "train/lab/statistics.h"

namespace duet {

struct LabMetric {
  std::string key;    // of metrics.jsonl: "val/bpb"
  std::string title;  // "bits per byte"
  bool higher_is_better = false;
};

struct RunSummary {
  std::string name, directory;
  std::size_t arm = 0;
  std::int64_t seed = 0;
  std::int64_t step = 0, max_iters = 0;
  bool complete = false;        // the evaluation after the last step is there
  bool diverged = false;        // ended by numbers that are not finite, or with such a loss
  std::vector<double> finals;   // one per metric, of that evaluation; NaN: none or not finite
  double seconds_per_step = 0;  // median over the log lines; NaN: none
  double seconds = 0;           // of the whole run
};

// A mean over the complete runs of an arm that have a finite value.
struct SeedMean {
  std::size_t n = 0;
  double mean = 0, deviation = 0;  // NaN when n is 0, or below 2
};

struct CurvePoint {
  std::int64_t step = 0;
  double tokens = 0, seconds = 0, value = 0;  // means over the seeds
};

struct ArmSummary {
  ExperimentArm arm;
  std::vector<SeedMean> finals;               // per metric
  std::vector<PairedDifference> differences;  // per metric: this arm minus the first, same seed
  std::vector<std::vector<double>> pairs;     // the differences themselves
  double seconds_per_step = 0;                // median over seeds
  std::vector<double> time_ratios;            // to the first arm, same seed
  std::vector<CurvePoint> curve;              // of the first metric
  std::vector<CurvePoint> difference_curve;   // the same, minus the first arm's; empty for it
};

struct LabSummary {
  ExperimentRecord record;
  std::vector<LabMetric> metrics;  // those that any run has; the first is the one compared
  std::vector<RunSummary> runs;    // seed by seed
  std::vector<ArmSummary> arms;
  std::vector<std::string> machines;  // "CPU, 2 threads, duet 0.1.0", each once
  std::size_t complete_runs() const;
  std::size_t diverged_early() const;  // runs that will not complete
};

LabSummary summarize(const ExperimentRecord& record);

}  // namespace duet
