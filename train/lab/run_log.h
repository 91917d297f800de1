// A run's metrics.jsonl, read back.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace duet {

struct RunPoint {
  std::int64_t step = 0, tokens = 0;
  double time = 0;  // seconds of the run so far, evaluations included
  std::optional<double> train_loss, seconds_per_step;  // means since the log line before
  std::map<std::string, double> val;  // "val/bpb", ...; NaN where the run had no finite number
};

struct RunLog {
  std::vector<RunPoint> points;  // by step
  std::int64_t last_step() const { return points.empty() ? 0 : points.back().step; }
  // Of the evaluation after this step; null: there is none.
  const RunPoint* evaluation(std::int64_t step) const;
};

// Empty when there is no log. A torn or foreign line is skipped: the run may be writing.
RunLog read_run_log(const std::string& run_directory);

// A run that stopped because its numbers were no longer finite (exit code 4) would stop so again:
// it is marked in its directory, until that is removed.
void mark_diverged(const std::string& run_directory);
bool is_marked_diverged(const std::string& run_directory);

}  // namespace duet
