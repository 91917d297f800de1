#include "train/lab/run_log.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "runtime/file_system.h"
#include "train/json_fields.h"

namespace duet {
namespace {

using Json = nlohmann::json;

// The lines of a file, with a piece of it in memory at a time. A line that is longer than any that
// a run writes is left out.
class Lines {
 public:
  explicit Lines(const std::string& path) : file_(file_system().open(path)) {}

  std::optional<std::string_view> next() {
    while (true) {
      const std::size_t end = text_.find('\n', position_);
      const bool found = end != std::string::npos, at_end = offset_ == file_.size();
      if (found || at_end) {
        if (!found && position_ == text_.size()) return std::nullopt;
        const auto line = std::string_view(text_).substr(position_, end - position_);
        position_ = found ? end + 1 : text_.size();
        if (!std::exchange(too_long_, false)) return line;
        continue;
      }
      too_long_ = too_long_ || text_.size() - position_ > kLongestLine;
      text_.erase(0, too_long_ ? text_.size() : std::exchange(position_, 0));
      position_ = 0;
      const std::int64_t bytes = std::min(file_.size() - offset_, kPiece);
      const std::size_t before = text_.size();
      text_.resize(before + static_cast<std::size_t>(bytes));
      file_.read(offset_, text_.data() + before, bytes);
      offset_ += bytes;
    }
  }

 private:
  static constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  static constexpr std::size_t kLongestLine = std::size_t{4} << 20;

  FileReader file_;
  std::string text_;  // of the file, up to offset_
  std::size_t position_ = 0;
  std::int64_t offset_ = 0;
  bool too_long_ = false;  // the line at position_, whose start is gone
};

constexpr const char* kDivergedFile = "/diverged";

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
  const std::string path = run_directory + "/metrics.jsonl";
  RunLog log;
  if (!file_system().exists(path)) return log;
  Lines lines(path);
  std::int64_t logged_step = 0, logged_tokens = 0;  // at the last line with a rate
  while (const auto line = lines.next()) {
    const std::optional<Json> json = try_json(*line);
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

void mark_diverged(const std::string& run_directory) {
  file_system().replace_file(run_directory + kDivergedFile,
                             "the run stopped with exit code 4: not finite\n");
}

bool is_marked_diverged(const std::string& run_directory) {
  return file_system().exists(run_directory + kDivergedFile);
}

}  // namespace duet
