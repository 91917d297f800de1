#include "train/lab/summary.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/file_system.h"
#include "runtime/printable.h"
#include "train/json_fields.h"

namespace duet {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

const std::vector<LabMetric>& known_metrics() {
  static const std::vector<LabMetric> all = {{"val/accuracy", "accuracy", true},
                                             {"val/bpb", "bits per byte", false},
                                             {"val/loss", "loss", false}};
  return all;
}

bool any_has(const std::vector<RunLog>& logs, const std::string& key) {
  return std::any_of(logs.begin(), logs.end(), [&](const RunLog& log) {
    return std::any_of(log.points.begin(), log.points.end(),
                       [&](const RunPoint& p) { return p.val.count(key) != 0; });
  });
}

double value_at(const RunPoint* point, const std::string& key) {
  if (point == nullptr) return kNone;
  const auto at = point->val.find(key);
  return at == point->val.end() ? kNone : at->second;
}

RunSummary run_summary(const RunLog& log, const std::vector<LabMetric>& metrics) {
  RunSummary out;
  out.step = log.last_step();
  std::vector<double> steps;
  for (const RunPoint& p : log.points) {
    if (p.seconds_per_step) steps.push_back(*p.seconds_per_step);
  }
  out.seconds_per_step = sample_median(steps);
  out.seconds = log.points.empty() ? kNone : log.points.back().time;
  out.finals.assign(metrics.size(), kNone);
  return out;
}

SeedMean seed_mean(std::vector<double> values) {
  values.erase(
      std::remove_if(values.begin(), values.end(), [](double v) { return !std::isfinite(v); }),
      values.end());
  return {values.size(), sample_mean(values), sample_deviation(values)};
}

// Means over logs at the steps where all of them were evaluated; minus `base`, log by log, if
// given.
std::vector<CurvePoint> mean_curve(const std::vector<const RunLog*>& logs,
                                   const std::vector<const RunLog*>& base, const std::string& key) {
  std::vector<CurvePoint> curve;
  if (logs.empty()) return curve;
  for (const RunPoint& first : logs.front()->points) {
    std::vector<double> values, tokens, seconds;
    for (std::size_t i = 0; i < logs.size(); ++i) {
      const RunPoint* point = logs[i]->evaluation(first.step);
      double value = value_at(point, key);
      if (!base.empty()) value -= value_at(base[i]->evaluation(first.step), key);
      if (!std::isfinite(value)) break;
      values.push_back(value);
      tokens.push_back(static_cast<double>(point->tokens));
      seconds.push_back(point->time);
    }
    if (values.size() != logs.size()) continue;
    curve.push_back({first.step, sample_mean(tokens), sample_mean(seconds), sample_mean(values)});
  }
  return curve;
}

// "Intel Xeon, 2 threads, duet 0.1.0" of a run's env.json; empty when it cannot be read.
std::string machine(const std::string& run_directory) {
  const std::string path = run_directory + "/env.json";
  if (!file_system().exists(path)) return "";
  constexpr std::int64_t kLimit = 1 << 20;
  const nlohmann::json env = try_json(file_system().read_file(path, kLimit)).value_or(nullptr);
  const auto word = [&](const char* key) {
    const bool text = env.is_object() && env.contains(key) && env[key].is_string();
    return text ? printable(env[key].get<std::string>()) : std::string("?");
  };
  return concat(word("cpu"), ", ", count_at(env, "threads").value_or(0), " threads, duet ",
                word("version"), ", ", word("compiler"));
}

class Summarizer {
 public:
  explicit Summarizer(const ExperimentRecord& record) { out_.record = record; }

  LabSummary operator()() {
    read();
    for (std::size_t arm = 0; arm < out_.record.arms.size(); ++arm) add_arm(arm);
    return std::move(out_);
  }

 private:
  std::size_t index(std::size_t seed, std::size_t arm) const {
    return seed * out_.record.arms.size() + arm;
  }

  void read() {
    const ExperimentRecord& record = out_.record;
    std::set<std::string> known;  // machines
    for (const std::int64_t seed : record.seeds) {
      for (std::size_t arm = 0; arm < record.arms.size(); ++arm) {
        const std::string directory = run_directory(record, arm, seed);
        logs_.push_back(read_run_log(directory));
        const std::string where = machine(directory);
        if (!where.empty() && known.insert(where).second) out_.machines.push_back(where);
      }
    }
    for (const LabMetric& metric : known_metrics()) {
      if (any_has(logs_, metric.key)) out_.metrics.push_back(metric);
    }
    for (std::size_t s = 0; s < record.seeds.size(); ++s) {
      for (std::size_t arm = 0; arm < record.arms.size(); ++arm) {
        const RunLog& log = logs_[index(s, arm)];
        RunSummary run = run_summary(log, out_.metrics);
        run.arm = arm;
        run.seed = record.seeds[s];
        run.name = run_name(record.arms[arm], run.seed);
        run.directory = run_directory(record, arm, run.seed);
        run.max_iters = record.arms[arm].max_iters;
        const RunPoint* last = log.evaluation(run.max_iters);
        run.complete = last != nullptr;
        for (std::size_t m = 0; m < out_.metrics.size(); ++m) {
          run.finals[m] = value_at(last, out_.metrics[m].key);
        }
        const bool no_number = !run.finals.empty() && !std::isfinite(run.finals[0]);
        run.diverged = run.complete ? no_number : is_marked_diverged(run.directory);
        out_.runs.push_back(std::move(run));
      }
    }
  }

  void add_arm(std::size_t arm) {
    ArmSummary summary;
    summary.arm = out_.record.arms[arm];
    const std::size_t seeds = out_.record.seeds.size();
    for (std::size_t m = 0; m < out_.metrics.size(); ++m) {
      std::vector<double> finals, pairs;
      for (std::size_t s = 0; s < seeds; ++s) {
        const double value = out_.runs[index(s, arm)].finals[m];
        const double pair = value - out_.runs[index(s, 0)].finals[m];
        finals.push_back(value);
        if (std::isfinite(pair)) pairs.push_back(pair);
      }
      summary.finals.push_back(seed_mean(finals));
      summary.differences.push_back(paired_difference(pairs));
      summary.pairs.push_back(pairs);
    }
    std::vector<double> steps;
    std::vector<const RunLog*> done, started, done_pair, done_base;
    for (std::size_t s = 0; s < seeds; ++s) {
      const RunSummary& run = out_.runs[index(s, arm)];
      const RunSummary& base = out_.runs[index(s, 0)];
      if (std::isfinite(run.seconds_per_step)) steps.push_back(run.seconds_per_step);
      const double ratio = run.seconds_per_step / base.seconds_per_step;
      if (std::isfinite(ratio)) summary.time_ratios.push_back(ratio);
      const RunLog& log = logs_[index(s, arm)];
      if (!log.points.empty()) started.push_back(&log);
      if (run.complete) done.push_back(&log);
      if (run.complete && base.complete) {
        done_pair.push_back(&log);
        done_base.push_back(&logs_[index(s, 0)]);
      }
    }
    summary.seconds_per_step = sample_median(steps);
    if (!out_.metrics.empty()) {
      const std::string& key = out_.metrics[0].key;
      summary.curve = mean_curve(done.empty() ? started : done, {}, key);
      if (arm > 0) summary.difference_curve = mean_curve(done_pair, done_base, key);
    }
    out_.arms.push_back(std::move(summary));
  }

  LabSummary out_;
  std::vector<RunLog> logs_;  // seed by seed
};

}  // namespace

std::size_t LabSummary::complete_runs() const {
  return static_cast<std::size_t>(
      std::count_if(runs.begin(), runs.end(), [](const RunSummary& r) { return r.complete; }));
}

std::size_t LabSummary::diverged_early() const {
  return static_cast<std::size_t>(std::count_if(
      runs.begin(), runs.end(), [](const RunSummary& r) { return r.diverged && !r.complete; }));
}

LabSummary summarize(const ExperimentRecord& record) { return Summarizer(record)(); }

}  // namespace duet
