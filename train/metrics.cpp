#include "train/metrics.h"

#include <utility>

#include "runtime/error.h"
#include "runtime/file_error.h"
#include "runtime/file_system.h"
#include "train/json_fields.h"
#include "train/lab/run_log.h"
#include "train/text.h"

namespace duet {

struct Metrics::Line {
  std::int64_t step = 0;
  nlohmann::ordered_json json;
};

bool is_log_step(std::int64_t step, std::int64_t max_iters, std::int64_t log_interval) {
  return step == 1 || step % log_interval == 0 || step == max_iters;
}

Metrics::Metrics(std::string out_dir, std::int64_t log_interval, Reporter& warn)
    : out_dir_(std::move(out_dir)),
      path_(out_dir_ + "/metrics.jsonl"),
      log_interval_(log_interval),
      warn_(warn) {}

Metrics::~Metrics() {
  if (stepped_) flush();  // a run that ends before its first step leaves nothing
}

double Metrics::elapsed() const {
  return time_before_ +
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Metrics::warn(const Error& error) {
  if (warned_) return;
  warned_ = true;
  warn_.on_notice(concat("metrics.jsonl: cannot be written: ", error.what(),
                         "; training goes on, and its lines wait for the next one"));
}

void Metrics::on_start(const StartReport& report) {
  start_ = std::chrono::steady_clock::now();
  last_step_ = report.resumed_from.empty() ? -1 : report.step;
  try {
    repair();
  } catch (const Error& error) {
    warn(error);
  }
}

// Keeps the whole lines of steps up to last_step_.
void Metrics::repair() {
  if (repaired_) return;
  constexpr std::int64_t kLimit = std::int64_t{1} << 32;
  const bool there = file_system().exists(path_);
  const std::string text = there ? file_system().read_file(path_, kLimit) : "";
  std::string kept;
  std::int64_t dropped = 0, last_begin = 0;
  double time = 0;
  std::unique_ptr<Line> last;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // torn
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    auto json = try_json<nlohmann::ordered_json>(line);
    const auto step = json ? count_at(*json, "step") : std::nullopt;
    if (!step) continue;
    if (*step > last_step_) {
      dropped += *step > 0 ? 1 : 0;
      continue;
    }
    if (json->contains("time") && (*json)["time"].is_number()) time = (*json)["time"];
    last_begin = static_cast<std::int64_t>(kept.size());
    last = std::make_unique<Line>(Line{*step, std::move(*json)});
    kept += line + "\n";
  }
  if (last_step_ < 0 && dropped > 0) {
    keep_aside(dropped);
  } else if (text.starts_with(kept)) {  // needs no room
    if (kept != text) file_system().truncate_file(path_, std::ssize(kept));
  } else {
    file_system().replace_file(path_, kept);
  }
  size_ = std::ssize(kept);
  time_before_ = time;
  // A line that came meanwhile is the last one.
  if (last_ == nullptr) {
    last_ = std::move(last);
    last_begin_ = last_begin;
  } else {
    last_begin_ += size_;
  }
  repaired_ = true;
}

// A log without a checkpoint may be all that is left of a long run.
void Metrics::keep_aside(std::int64_t lines) {
  std::string aside;
  for (int number = 1; aside.empty() || file_system().type(aside) != FileType::missing; ++number) {
    aside = concat(path_, ".", number);
  }
  file_system().rename(path_, aside);
  file_system().sync_directory(out_dir_);
  warn_.on_notice(concat(path_, ": its ", counted(lines, "line"),
                         " are of steps that no checkpoint holds; the file is kept as ", aside));
}

void Metrics::append_waiting() {
  repair();
  if (file_ == nullptr) {
    file_ = std::make_unique<FileWriter>(file_system().create(path_, WriteMode::append));
  }
  if (torn_) file_system().truncate_file(path_, size_);
  torn_ = true;
  file_->write(waiting_);  // one write: a kill tears this line at most
  torn_ = false;
  size_ += std::ssize(waiting_);
  waiting_.clear();
  warned_ = false;
}

void Metrics::write_waiting() {
  try {
    append_waiting();
  } catch (const Error& error) {
    warn(error);
    constexpr std::int64_t kMostWaiting = 64 << 20;
    if (std::ssize(waiting_) < kMostWaiting) return;
    waiting_.clear();
    last_.reset();
    warn_.on_notice("metrics.jsonl: lines are lost: too many of them wait");
  }
}

Metrics::Line& Metrics::line(std::int64_t step, std::int64_t tokens) {
  if (line_ != nullptr && line_->step != step) flush();
  if (line_ == nullptr && last_ != nullptr && last_->step == step) {
    // A run that was stopped before the evaluation of its last step makes up for it.
    line_ = std::move(last_);
    taken_back_ = true;
  } else if (line_ == nullptr) {
    line_ = std::make_unique<Line>();
    line_->step = step;
    line_->json["step"] = step;
    line_->json["tokens"] = tokens;
    line_->json["time"] = elapsed();
  }
  return *line_;
}

void Metrics::on_step(const StepReport& report) {
  if (line_ != nullptr && line_->step != report.step) flush();
  stepped_ = true;
  seconds_since_ += report.seconds;
  tokens_since_ += report.step_tokens;
  if (!is_log_step(report.step, report.max_iters, log_interval_)) return;
  auto& json = line(report.step, report.tokens).json;
  json["train/loss"] = report.loss;  // NaN becomes null
  json["train/lr"] = report.lr;
  json["train/grad_norm"] = report.grad_norm;
  json["train/tok_per_sec"] =
      seconds_since_ > 0 ? static_cast<double>(tokens_since_) / seconds_since_ : 0;
  json["memory/peak_bytes"] = report.memory_bytes;
  seconds_since_ = 0;
  tokens_since_ = 0;
}

std::vector<std::pair<std::string_view, const HeadTable*>> Diagnostics::tables() const {
  std::vector<std::pair<std::string_view, const HeadTable*>> out{
      {"attn/effective_rank", &effective_rank},
      {"attn/gap", &gap},
      {"attn/gap_ratio", &gap_ratio},
      {"attn/entropy", &entropy},
      {"attn/entropy_norm", &entropy_norm},
      {"attn/sink", &sink},
      {"attn/entropy_2", &entropy_2},
      {"attn/entropy_norm_2", &entropy_norm_2},
      {"attn/sink_2", &sink_2},
  };
  std::erase_if(out, [](const auto& entry) { return entry.second->empty(); });
  return out;
}

void Metrics::on_eval(const EvalReport& report) {
  auto& json = line(report.step, report.tokens).json;
  json["val/loss"] = report.loss;
  json["val/ppl"] = report.ppl;
  if (report.accuracy) {
    json["val/accuracy"] = *report.accuracy;
  } else {
    json["val/bpb"] = report.bits_per_byte;
  }
  if (!report.coupling_dt.empty()) json["coupling/dt"] = report.coupling_dt;
  if (!report.diff_lambda.empty()) json["diff/lambda"] = report.diff_lambda;
  if (report.diagnostics) {
    for (const auto& [key, table] : report.diagnostics->tables()) json[key] = *table;
    json["residual/collapse"] = report.diagnostics->collapse;
    json["residual/cosine"] = report.diagnostics->cosine;
  }
  // Before the checkpoint that makes the evaluation final; but an evaluation that no step follows
  // is no run.
  if (stepped_ || report.step > 0) flush();
}

bool Metrics::holds_evaluation(std::int64_t step) const {
  return read_run_log(out_dir_).evaluation(step) != nullptr;
}

// On a full disk the checkpoint waits with its lines, and what is pruned for it makes room for
// both. Any other fault of the log costs no checkpoint.
void Metrics::on_save() {
  flush();
  try {
    if (!waiting_.empty()) append_waiting();
    if (file_ == nullptr) return;
    file_->sync();
    if (!listed_) file_system().sync_directory(out_dir_);
    listed_ = true;
  } catch (const NoRoomError&) {
    throw;
  } catch (const Error& error) {
    warn(error);
  }
}

// Through a copy: a kill leaves the old line or the new one.
void Metrics::replace_last(const std::string& text) {
  const bool written = last_begin_ < size_;
  try {
    if (written) {
      const std::string before = file_system().open(path_).head(last_begin_);
      file_system().replace_file(path_, before + text);
      file_.reset();
      size_ = last_begin_ + std::ssize(text);
      return;
    }
  } catch (const Error& error) {
    warn(error);
    size_ = last_begin_;
    torn_ = true;
  }
  waiting_.resize(static_cast<std::size_t>(last_begin_ - size_));
  waiting_ += text;
  write_waiting();
}

void Metrics::flush() {
  if (line_ == nullptr) return;
  last_ = std::move(line_);
  const std::string text = last_->json.dump() + "\n";
  if (std::exchange(taken_back_, false)) {
    replace_last(text);
    return;
  }
  last_begin_ = size_ + std::ssize(waiting_);
  waiting_ += text;
  write_waiting();
}

}  // namespace duet
