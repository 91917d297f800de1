// metrics.jsonl: one JSON object per logged or evaluated step, appended as the run goes.
//
//   {"step":200,"tokens":153600,"time":9.6,"train/loss":1.94,"train/lr":0.00098,...,"val/loss":1.88}
//
// A step has one line: what training and evaluation say about it is joined. A resumed run drops the
// lines of steps after the checkpoint, which come again, and a torn last line.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "train/reporter.h"

namespace duet {

class FileWriter;

// Whether the step gets a log line: the first of a run, every log_interval-th, and the last.
bool is_log_step(std::int64_t step, std::int64_t max_iters, std::int64_t log_interval);

class Metrics final : public Reporter {
 public:
  // `warn` is told once when a line cannot be written: training goes on, later lines are tried.
  Metrics(std::string out_dir, std::int64_t log_interval, Reporter& warn);
  ~Metrics() override;

  void on_start(const StartReport& report) override;
  void on_step(const StepReport& report) override;
  void on_eval(const EvalReport& report) override;
  void on_checkpoint(std::int64_t step, const std::string& directory) override;
  void flush();  // writes the line that may still be joined

 private:
  struct Line;
  // The line of this step; the last one of the file is taken back if it is.
  Line& line(std::int64_t step, std::int64_t tokens);
  void repair(std::int64_t last_step);
  void append(const std::string& text);
  double elapsed() const;

  std::string path_;
  std::int64_t log_interval_;
  Reporter& warn_;
  std::unique_ptr<FileWriter> file_;
  std::unique_ptr<Line> last_;              // of the file
  std::int64_t last_begin_ = 0, size_ = 0;  // bytes before it, and of all whole lines
  bool warned_ = false, stepped_ = false;
  std::unique_ptr<Line> line_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double time_before_ = 0;    // of the run before it was resumed
  double seconds_since_ = 0;  // of the steps since the last log line
  std::int64_t tokens_since_ = 0;
};

}  // namespace duet
