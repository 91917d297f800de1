#include "train/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "runtime/printable.h"
#include "runtime/system_calls.h"
#include "train/command_line.h"
#include "train/device_choice.h"
#include "train/hints.h"
#include "train/metrics.h"
#include "train/text.h"

namespace duet {
namespace {

constexpr std::int64_t kWarmSteps = 3;  // page faults, caches, kernel choices
constexpr double kRedrawSeconds = 0.1;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool set_in_environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("SIG{}", name);
}

std::string time_of_step(double seconds) {
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  return fmt::format("{:.1f} ms", seconds * 1e3);
}

std::string perplexity(double ppl) {
  return ppl < 1e5 ? fmt::format("{:.2f}", ppl) : fmt::format("{:.2e}", ppl);
}

}  // namespace

ConsoleOptions ConsoleOptions::standard_output() {
  ConsoleOptions out;
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::string_view(term) == "dumb";
  out.live = isatty(STDOUT_FILENO) == 1 && !dumb;
  out.color = out.live && !set_in_environment("NO_COLOR");
  out.columns = terminal_columns;
  return out;
}

Console::Console(ConsoleOptions options, const ResolvedConfig& config, std::string device_reason)
    : options_(std::move(options)), config_(config), device_reason_(std::move(device_reason)) {
  if (!options_.clock) options_.clock = steady_seconds;
  begin_ = options_.clock();
}

Screen Console::painted(Paint paint, const std::string& text) const {
  return {options_.color ? paint : Paint::none, text};
}

void Console::write(const Screen& text) {
  const int error = write_stream(options_.fd, text.bytes());
  if (error == 0 || lost_) return;
  lost_ = true;
  on_notice(std::string("standard output: cannot write: ") + std::strerror(error) +
            "; the run goes on, its numbers are in metrics.jsonl");
}

void Console::clear_live_line() {
  if (drawn_) write(Screen::cleared_line());
  drawn_ = false;
}

void Console::print(const Screen& line) {
  clear_live_line();
  write(line + "\n");
}

void Console::on_start(const StartReport& report) {
  begin_ = options_.clock();
  const Device device = report.device == "cpu" ? kCpu : Device{DeviceType::cuda, 0};
  const std::string fallback = fallback_notice(config_.run.device, {device, device_reason_});
  if (!fallback.empty()) print(fallback);  // first of all: a GPU was hoped for
  for (const std::string& line : start_box(config_, report, device_reason_)) print(line);
  for (const std::string& change : config_.changes) print("changed since the run began: " + change);
  for (const std::string& hint : hints(config_, report))
    print(painted(Paint::yellow, "HINT: ") + hint);
}

std::string Console::step_line(const StepReport& report, int columns) const {
  const double steps = static_cast<double>(std::max<std::int64_t>(window_.steps, 1));
  std::vector<std::string> fields = {
      fmt::format("step {}/{}", report.step, report.max_iters),
      fmt::format("loss {:.4f}", report.loss),
      fmt::format("norm {:.2f}", report.grad_norm),
      fmt::format("lr {:.1e}", report.lr),
      time_of_step(window_.seconds / steps),
  };
  if (window_.seconds > 0) {
    const double rate = static_cast<double>(window_.tokens) / window_.seconds;
    const double gflops = window_.flops / window_.seconds * 1e-9;
    fields.push_back(format_short(rate) + " tok/s");
    fields.push_back(fmt::format("{:.{}f} GFLOP/s", gflops, gflops < 10 ? 1 : 0));
  }
  fields.push_back("mem " + format_bytes(report.memory_bytes));
  std::string eta = "eta ?";
  if (!times_.empty()) {
    const auto left = static_cast<double>(report.max_iters - report.step);
    eta = "eta " + format_duration(std::max(0.0, times_.mean() * left));
  }
  // A line that does not fit the terminal would wrap and could not be redrawn: fields go, the ones
  // that matter least first.
  const auto joined = [&] {
    std::string line;
    for (const std::string& field : fields) line += field + " | ";
    return line + eta;
  };
  while (columns > 0 && fields.size() > 2 && joined().size() >= static_cast<std::size_t>(columns)) {
    fields.pop_back();
  }
  std::string line = joined();
  if (columns > 0) line = line.substr(0, static_cast<std::size_t>(columns - 1));
  return line;
}

void Console::on_step(const StepReport& report) {
  ++steps_;
  tokens_ = report.tokens;
  const double now = options_.clock();
  const double since = now - std::exchange(stepped_at_, now);
  const bool evaluated = std::exchange(evaluated_, false);
  const bool usual = steps_ <= kWarmSteps || times_.add(since, evaluated);
  // The first steps would spoil the averages of the first line that has others.
  if (steps_ == kWarmSteps + 1) window_ = {};
  if (usual) {
    ++window_.steps;
    window_.tokens += report.step_tokens;
    window_.seconds += report.seconds;
    window_.flops += report.flops;
  }

  const bool logged = is_log_step(report.step, report.max_iters, config_.run.log_interval);
  const bool last = report.step == report.max_iters;
  if (options_.live && !last) {
    if (drawn_ && now - drawn_at_ < kRedrawSeconds) return;
    write(Screen::cleared_line() + step_line(report, options_.columns ? options_.columns() : 0));
    drawn_ = true;
    drawn_at_ = now;
    if (logged) window_ = {};
  } else if (logged) {
    print(step_line(report, 0));
    window_ = {};
  }
}

// Seconds to minutes pass. Without a terminal only the first one is announced, which nothing else
// precedes.
void Console::on_eval_start(std::int64_t step) {
  evaluated_ = true;
  const std::string line = fmt::format("step {} | evaluating", step);
  if (options_.live) {
    write(Screen::cleared_line() + line);
    drawn_ = true;
  } else if (steps_ == 0) {
    print(line);
  }
}

void Console::on_eval(const EvalReport& report) {
  Screen line = fmt::format("step {} | val loss {:.4f} | ppl {}", report.step, report.loss,
                            perplexity(report.ppl));
  line += report.accuracy ? fmt::format(" | accuracy {:.4f}", *report.accuracy)
                          : fmt::format(" | bpb {:.3f}", report.bits_per_byte);
  if (report.best) line += Screen(" | ") + painted(Paint::green, "best");
  print(line);
  if (!report.look_left_out || report.step == 0 || std::exchange(left_out_, true)) return;
  print(
      "diagnostics are left out where they would take more than 2 % of the time; duet eval "
      "--diagnostics measures a checkpoint");
}

void Console::on_checkpoint(std::int64_t step, const std::string& directory) {
  print(fmt::format("step {} | saved {}", step, printable(directory, 4096)));
}

void Console::on_notice(const std::string& text) {
  clear_live_line();
  // Where even this fails there is nowhere left to tell.
  static_cast<void>(write_stream(options_.error_fd, terminal_text("note: " + text + "\n")));
}

void Console::finish(const TrainResult& result) {
  const std::string& out_dir = config_.run.out_dir;
  const std::string dir = printable(out_dir, 4096);
  if (result.already_complete) {  // the trainer's notice said so
    print("  train on   " + advised({"train", "--resume", "--out_dir", out_dir, "--max_iters",
                                     std::to_string(result.step * 2)}));
    return;
  }
  std::string head = result.signal != 0 ? fmt::format("stopped by {} after step {}",
                                                      signal_name(result.signal), result.step)
                                        : "done: " + counted(result.step, "step");
  head += fmt::format(", {} tokens, {}", format_short(static_cast<double>(tokens_)),
                      format_duration(options_.clock() - begin_));
  if (result.best_step >= 0) {
    head += fmt::format(", best val loss {:.4f} at step {}", result.best_loss, result.best_step);
  }
  if (result.skipped_steps > 0)
    head += fmt::format(", {} skipped", counted(result.skipped_steps, "step"));
  print(painted(Paint::bold, head));
  if (result.step == 0) {
    print("  nothing is kept: no step was taken");
    return;
  }
  print("  metrics    " + dir + "/metrics.jsonl");
  if (!result.checkpoint.empty()) print("  checkpoint " + printable(result.checkpoint, 4096));
  if (result.signal != 0) {
    print("  go on      " + advised({"train", "--resume", "--out_dir", out_dir}));
  } else {
    print("  next       " +
          (config_.run.task == TaskKind::mqar
               ? advised({"eval", "--checkpoint", out_dir})
               : advised({"generate", "--checkpoint", out_dir, "--prompt", "The "})));
  }
}

}  // namespace duet
