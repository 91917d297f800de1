#include "train/metrics.h"

#include "runtime/error.h"
#include "runtime/file_system.h"
#include "train/json_fields.h"

namespace duet {

struct Metrics::Line {
  std::int64_t step = 0;
  nlohmann::ordered_json json;
};

bool is_log_step(std::int64_t step, std::int64_t max_iters, std::int64_t log_interval) {
  return step == 1 || step % log_interval == 0 || step == max_iters;
}

Metrics::Metrics(std::string out_dir, std::int64_t log_interval, Reporter& warn)
    : path_(std::move(out_dir) + "/metrics.jsonl"), log_interval_(log_interval), warn_(warn) {}

Metrics::~Metrics() {
  if (stepped_) flush();  // a run that ends before its first step leaves nothing
}

double Metrics::elapsed() const {
  return time_before_ +
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Metrics::on_start(const StartReport& report) {
  start_ = std::chrono::steady_clock::now();
  try {
    repair(report.resumed_from.empty() ? -1 : report.step);
  } catch (const Error& error) {
    warned_ = true;
    warn_.on_notice(concat("metrics.jsonl: ", error.what()));
  }
}

// Keeps the whole lines of steps up to last_step.
void Metrics::repair(std::int64_t last_step) {
  if (!file_system().exists(path_)) return;
  constexpr std::int64_t kLimit = std::int64_t{1} << 32;
  const std::string text = file_system().read_file(path_, kLimit);
  std::string kept;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // torn
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    auto json = try_json<nlohmann::ordered_json>(line);
    const auto step = json ? count_at(*json, "step") : std::nullopt;
    if (!step || *step > last_step) continue;
    if (json->contains("time") && (*json)["time"].is_number()) time_before_ = (*json)["time"];
    last_begin_ = static_cast<std::int64_t>(kept.size());
    last_ = std::make_unique<Line>(Line{*step, std::move(*json)});
    kept += line + "\n";
  }
  if (kept != text) file_system().replace_file(path_, kept);
  size_ = static_cast<std::int64_t>(kept.size());
}

void Metrics::append(const std::string& text) {
  try {
    if (file_ == nullptr) {
      file_ = std::make_unique<FileWriter>(file_system().create(path_, WriteMode::append));
    }
    file_->write(text);
    last_begin_ = size_;
    size_ += static_cast<std::int64_t>(text.size());
  } catch (const Error& error) {
    file_.reset();
    last_.reset();
    if (!warned_) warn_.on_notice(concat("metrics.jsonl: a line is lost: ", error.what()));
    warned_ = true;
    try {  // half a line must not run into the next one
      if (file_system().exists(path_)) file_system().truncate_file(path_, size_);
    } catch (const Error&) {  // told above; the reader drops what is torn
    }
  }
}

Metrics::Line& Metrics::line(std::int64_t step, std::int64_t tokens) {
  if (line_ != nullptr && line_->step != step) flush();
  if (line_ == nullptr && last_ != nullptr && last_->step == step) {
    // A run that was stopped before the evaluation of its last step makes up for it.
    file_system().truncate_file(path_, last_begin_);
    size_ = last_begin_;
    line_ = std::move(last_);
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

void Metrics::on_checkpoint(std::int64_t, const std::string&) { flush(); }

void Metrics::flush() {
  if (line_ == nullptr) return;
  last_ = std::move(line_);
  append(last_->json.dump() + "\n");  // one write: a kill tears this line at most
}

}  // namespace duet
