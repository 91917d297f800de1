// Console: a run as people and log files read it. A box at the start, then plain lines; on a
// terminal the step line is redrawn in place.
//
//   step 120/2000 | loss 1.9432 | norm 0.87 | lr 9.8e-04 | 48.1 ms | 16.0k tok/s | 112 GFLOP/s |
//   ... step 250 | val loss 1.8847 | ppl 6.58 | bpb 2.719 | best
//
// Notices go to standard error. A standard output that cannot be written (closed pipe, full disk)
// never stops the run: it is said once, there too.
#pragma once

#include <functional>
#include <string>

#include "runtime/terminal_text.h"
#include "train/config.h"
#include "train/reporter.h"
#include "train/step_times.h"
#include "train/trainer.h"

namespace duet {

struct ConsoleOptions {
  int fd = 1, error_fd = 2;
  bool live = false;  // redraw the step line; for a terminal
  bool color = false;
  std::function<int()> columns;   // of the terminal, asked at each redraw; empty: unlimited
  std::function<double()> clock;  // monotonic seconds; empty: the steady clock
  // What the options fit: a terminal or not, TERM=dumb, NO_COLOR.
  static ConsoleOptions standard_output();
};

class Console final : public Reporter {
 public:
  // `device_reason` says why this device: "auto: this build has no CUDA".
  Console(ConsoleOptions options, const ResolvedConfig& config, std::string device_reason);

  void on_start(const StartReport& report) override;
  void on_step(const StepReport& report) override;
  void on_eval_start(std::int64_t step) override;
  void on_eval(const EvalReport& report) override;
  void on_checkpoint(std::int64_t step, const std::string& directory) override;
  void on_notice(const std::string& text) override;
  // The closing lines: what was done, where it lies, what to type next.
  void finish(const TrainResult& result);

 private:
  void print(const Screen& line);  // a line that stays
  void write(const Screen& text);
  void clear_live_line();
  std::string step_line(const StepReport& report, int columns) const;
  Screen painted(Paint paint, const std::string& text) const;

  ConsoleOptions options_;
  const ResolvedConfig& config_;
  std::string device_reason_;
  bool lost_ = false;   // standard output failed, and that was said
  bool drawn_ = false;  // a live line stands on the screen
  double drawn_at_ = 0;
  bool left_out_ = false;   // it was said that diagnostics are
  std::int64_t steps_ = 0;  // of this process
  double begin_ = 0;        // on_start
  double stepped_at_ = 0;   // when the step before was reported
  bool evaluated_ = false;  // since then
  StepTimes times_;         // without the first steps, which are left out of averages
  std::int64_t tokens_ = 0;
  double last_bpb_ = 0, last_val_ = 0;
  // Since the last printed step line.
  struct Window {
    std::int64_t steps = 0, tokens = 0;
    double seconds = 0, flops = 0;
  } window_;
};

// The start box, one string per line.
std::vector<std::string> start_box(const ResolvedConfig& config, const StartReport& start,
                                   const std::string& device_reason);

}  // namespace duet
