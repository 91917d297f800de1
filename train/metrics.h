// metrics.jsonl: one JSON object per logged or evaluated step, appended as the run goes.
//
//   {"step":200,"tokens":153600,"time":9.6,"train/loss":1.94,"train/lr":0.00098,...,"val/loss":1.88}
//
// A step has one line: what training and evaluation say about it is joined. It is on the disk
// before the step's checkpoint is final. A resumed run drops the lines of steps after the
// checkpoint, which come again, and a torn last line. Lines that cannot be written wait in memory
// for the next one.
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
  // `warn` is told when lines cannot be written, once until it works again: training goes on.
  Metrics(std::string out_dir, std::int64_t log_interval, Reporter& warn);
  ~Metrics() override;

  void on_start(const StartReport& report) override;
  void on_step(const StepReport& report) override;
  void on_eval(const EvalReport& report) override;
  void on_save() override;
  bool holds_evaluation(std::int64_t step) const override;
  void flush();  // writes the line that may still be joined

 private:
  struct Line;
  // The line of this step; the last one is taken back if it is.
  Line& line(std::int64_t step, std::int64_t tokens);
  void repair();
  void keep_aside(std::int64_t lines);
  void append_waiting();
  void write_waiting();  // the same, where a failure is only told
  void replace_last(const std::string& text);
  void warn(const Error& error);
  double elapsed() const;

  std::string out_dir_, path_;
  std::int64_t log_interval_;
  Reporter& warn_;
  std::int64_t last_step_ = -1;  // lines of later steps are dropped
  bool repaired_ = false;        // until then the file is left alone
  std::unique_ptr<FileWriter> file_;
  std::int64_t size_ = 0;        // bytes of the file that stay: whole lines
  bool torn_ = false;            // the file may hold more than them
  std::string waiting_;          // lines that come behind them
  bool listed_ = false;          // its name is on the disk; a killed run may have left it off
  std::unique_ptr<Line> last_;   // of the file or the waiting ones
  std::int64_t last_begin_ = 0;  // bytes before it
  bool taken_back_ = false;      // line_ is it
  bool warned_ = false, stepped_ = false;
  std::unique_ptr<Line> line_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double time_before_ = 0;    // of the run before it was resumed
  double seconds_since_ = 0;  // of the steps since the last log line
  std::int64_t tokens_since_ = 0;
};

}  // namespace duet
