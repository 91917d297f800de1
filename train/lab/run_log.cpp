#include "train/lab/run_log.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "runtime/file_system.h"
#include "train/json_fields.h"

namespace duet {
namespace {

using Json = nlohmann::json;

std::optional<double> number(const Json& line, const char* key) {
  const auto at = line.find(key);
  if (at == line.end()) return std::nullopt;
  return at->is_number() ? at->get<double>() : std::nan("");
}

std::optional<RunPoint> point_of(const Json& line) {
  const auto step = count_at(line, "step");
  const auto tokens = count_at(line, "tokens");
  if (!step || !tokens) return std::nullopt;
  RunPoint point;
  point.step = *step;
  point.tokens = *tokens;
  point.time = number(line, "time").value_or(0);
  point.train_loss = number(line, "train/loss");
  for (const char* key : {"val/loss", "val/bpb", "val/accuracy"}) {
    if (const auto value = number(line, key)) point.val[key] = *value;
  }
  return point;
}

}  // namespace

const RunPoint* RunLog::evaluation(std::int64_t step) const {
  const auto at = std::lower_bound(points.begin(), points.end(), step,
                                   [](const RunPoint& p, std::int64_t s) { return p.step < s; });
  return at == points.end() || at->step != step || at->val.empty() ? nullptr : &*at;
}

RunLog read_run_log(const std::string& run_directory) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 32;
  const std::string path = run_directory + "/metrics.jsonl";
  RunLog log;
  if (!file_system().exists(path)) return log;
  std::istringstream text(file_system().read_file(path, kLimit));
  std::int64_t logged_step = 0, logged_tokens = 0;  // at the last line with a rate
  for (std::string line; std::getline(text, line);) {
    const std::optional<Json> json = try_json(line);
    std::optional<RunPoint> point = json ? point_of(*json) : std::nullopt;
    if (!point || (!log.points.empty() && point->step <= log.last_step())) continue;
    const std::optional<double> rate = number(*json, "train/tok_per_sec");
    if (rate && *rate > 0 && point->step > logged_step) {
      const auto tokens = static_cast<double>(point->tokens - logged_tokens);
      point->seconds_per_step = tokens / *rate / static_cast<double>(point->step - logged_step);
      logged_step = point->step;
      logged_tokens = point->tokens;
    }
    log.points.push_back(std::move(*point));
  }
  return log;
}

}  // namespace duet
