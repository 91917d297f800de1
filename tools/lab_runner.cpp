#include "tools/lab_runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <list>
#include <optional>
#include <thread>

#include "runtime/cpu/parallel.h"
#include "runtime/file_system.h"
#include "runtime/printable.h"
#include "runtime/stop.h"
#include "tools/child_process.h"
#include "tools/output.h"
#include "train/checkpoint_files.h"
#include "train/console.h"
#include "train/lab/report.h"
#include "train/run_directory.h"
#include "train/text.h"

namespace duet {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(50);
constexpr int kPollsPerLook = 20;  // at the logs of the runs
constexpr int kDiverged = 4;       // the exit code of a run whose numbers are not finite

// A run whose files cannot be read now counts as one without files.
RunLog log_of(const ExperimentRun& run) try {
  return read_run_log(run.directory);
} catch (const Error&) {
  return {};
}

// The last line of a run's output that tells of an error.
std::string last_error(const std::string& log) try {
  constexpr std::int64_t kTail = 8192;
  const FileReader file = file_system().open(log);
  const std::int64_t bytes = std::min(file.size(), kTail);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.read(file.size() - bytes, text.data(), bytes);
  const std::size_t at = text.rfind("error: ");
  return at == std::string::npos
             ? "see " + printable(log, 4096)
             : printable(text.substr(at + 7, text.find('\n', at) - at - 7), 400);
} catch (const Error& error) {
  return error.what();
}

class Runner {
 public:
  Runner(const Experiment& experiment, std::int64_t jobs)
      : experiment_(experiment),
        jobs_(jobs),
        console_(ConsoleOptions::standard_output()),
        seconds_per_step_(experiment.record.arms.size(), 0.0) {}

  LabOutcome operator()() {
    sort_out();
    while (!active_.empty() || !pending_.empty()) {
      const int signal = stop_requested();
      if (signal != 0 && outcome_.signal == 0) stop(signal);
      reap();
      while (outcome_.signal == 0 && !pending_.empty() &&
             static_cast<std::int64_t>(active_.size()) < jobs_ && try_start(*pending_.front())) {
        pending_.pop_front();
      }
      if (polls_++ % kPollsPerLook == 0) look();
      if (active_.empty() && (outcome_.signal != 0 || pending_.empty())) break;
      std::this_thread::sleep_for(kPoll);
    }
    return outcome_;
  }

 private:
  struct Active {
    const ExperimentRun* run;
    ChildProcess child;
    std::int64_t shown = -1;  // the last evaluation that was printed
    RunLog log;
  };

  std::int64_t max_iters(const ExperimentRun& run) const { return run.resolved.max_iters; }
  std::string label(const ExperimentRun& run) const {
    return fmt::format("run {}/{} {}", &run - experiment_.runs.data() + 1, experiment_.runs.size(),
                       run.name);
  }
  std::string log_path(const ExperimentRun& run) const {
    return concat(experiment_.record.directory, "/logs/", run.name, ".log");
  }

  void print(const std::string& line) {
    write_progress((drawn_ ? Screen::cleared_line() : Screen("")) + line + "\n");
    drawn_ = false;
  }
  void draw(std::string line) {
    if (!console_.live) return;
    const int columns = console_.columns ? console_.columns() : 80;
    line = line.substr(0, static_cast<std::size_t>(std::max(columns - 1, 1)));
    write_progress(Screen::cleared_line() + line);
    drawn_ = true;
  }

  void learn_rate(const ExperimentRun& run, const RunLog& log) {
    if (log.last_step() > 0) {
      seconds_per_step_[run.arm] = log.points.back().time / static_cast<double>(log.last_step());
    }
  }

  void sort_out() {
    std::size_t done = 0;
    for (const ExperimentRun& run : experiment_.runs) {
      learn_rate(run, log_of(run));
      if (is_finished(run)) {
        ++done;
      } else if (is_marked_diverged(run.directory)) {
        print(fmt::format("{} | diverged before: not repeated; remove {} to train it again",
                          label(run), printable(run.directory, 4096)));
        outcome_.code = kDiverged;
      } else {
        pending_.push_back(&run);
      }
    }
    if (done > 0) print(fmt::format("{} of {} runs are done", done, experiment_.runs.size()));
  }

  // One that cannot be started, on a full disk say, takes no other with it.
  bool try_start(const ExperimentRun& run) {
    try {
      return start(run);
    } catch (const Error& error) {
      print(fmt::format("{} | cannot be started: {}", label(run), error.what()));
      if (outcome_.code == 0) outcome_.code = 1;
      return true;
    }
  }

  // False when the run's directory is in use: a run whose experiment was killed may still be
  // saving.
  bool start(const ExperimentRun& run) {
    if (file_system().is_directory(run.directory)) {
      const LockAttempt attempt = file_system().try_lock(run.directory + "/run.lock",
                                                         concat("pid ", getpid(), " (duet lab)\n"));
      if (!attempt.lock) {
        if (waiting_for_ != &run) print(label(run) + " | in use by another process, waiting");
        waiting_for_ = &run;
        return false;
      }
    }
    const std::int64_t threads =
        run.resolved.threads > 0
            ? run.resolved.threads
            : std::max<std::int64_t>(1, available_threads() / std::max<std::int64_t>(jobs_, 1));
    std::vector<std::string> arguments = {"train"};
    const bool resume = has_run(run.directory);
    if (resume) {
      arguments.insert(arguments.end(), {"--resume", "--out_dir", run.directory});
    } else {
      arguments.push_back(run.config_path);
    }
    arguments.insert(arguments.end(), {"--threads", std::to_string(threads)});
    print(fmt::format("{} | {}{}", label(run), resume ? "goes on" : "starts", all_eta()));
    active_.push_back({&run, ChildProcess(arguments, log_path(run)), -1, {}});
    return true;
  }

  void reap() {
    for (auto at = active_.begin(); at != active_.end();) {
      const std::optional<int> code = at->child.poll();
      if (!code) {
        ++at;
        continue;
      }
      const ExperimentRun& run = *at->run;
      at->log = log_of(run);
      learn_rate(run, at->log);
      const RunPoint* last = at->log.evaluation(max_iters(run));
      if (*code == 0 && last != nullptr) {
        print(fmt::format("{} | done | {} | {}", label(run), val_words(*last),
                          format_duration(last->time)));
      } else if (outcome_.signal != 0) {
        print(fmt::format("{} | stopped at step {}", label(run), at->log.last_step()));
      } else {
        const int failed = *code == 0 ? 1 : *code;
        if (failed == kDiverged) mark_diverged(run.directory);
        print(fmt::format("{} | {} with exit code {}: {}", label(run),
                          failed == kDiverged ? "diverged" : "failed", failed,
                          last_error(log_path(run))));
        if (outcome_.code == 0) outcome_.code = failed <= 4 ? failed : 1;
      }
      at = active_.erase(at);
      try {
        write_reports(experiment_.record);
      } catch (const Error& error) {  // the last one, after all runs, is the one that counts
        note(concat("the reports cannot be written now: ", error.what()));
      }
    }
  }

  void stop(int signal) {
    outcome_.signal = signal;
    for (Active& active : active_) active.child.signal(signal);
    if (!active_.empty()) print("stopping: the runs save and end; a second signal ends them now");
  }

  static std::string val_words(const RunPoint& point) {
    const auto at = [&](const char* key) { return point.val.count(key) != 0; };
    if (at("val/accuracy")) return fmt::format("accuracy {:.4f}", point.val.at("val/accuracy"));
    if (at("val/bpb")) return fmt::format("val bpb {:.4f}", point.val.at("val/bpb"));
    return fmt::format("val loss {:.4f}", point.val.at("val/loss"));
  }

  // Seconds for the rest, at the rate of each arm, or of the others while it has none.
  std::optional<double> seconds_left() const {
    double known = 0;
    int arms = 0;
    for (const double rate : seconds_per_step_) {
      known += rate;
      arms += rate > 0 ? 1 : 0;
    }
    if (arms == 0) return std::nullopt;
    double sum = 0;
    const auto add = [&](const ExperimentRun& run, std::int64_t steps_done) {
      const double own = seconds_per_step_[run.arm];
      sum += static_cast<double>(std::max<std::int64_t>(0, max_iters(run) - steps_done)) *
             (own > 0 ? own : known / arms);
    };
    for (const Active& active : active_) add(*active.run, active.log.last_step());
    for (const ExperimentRun* run : pending_) add(*run, 0);
    return sum / static_cast<double>(jobs_);
  }
  std::string all_eta() const {
    const auto left = seconds_left();
    return left ? " | all runs eta " + format_duration(*left) : "";
  }

  // Reads the logs of the running ones and tells what is new.
  void look() {
    std::string line;
    for (Active& active : active_) {
      active.log = log_of(*active.run);
      learn_rate(*active.run, active.log);
      const RunLog& log = active.log;
      if (log.points.empty()) continue;
      const RunPoint& last = log.points.back();
      std::string words =
          fmt::format("{} | step {}/{}", label(*active.run), last.step, max_iters(*active.run));
      if (!last.val.empty() && last.step > active.shown && last.step > 0) {
        active.shown = last.step;
        print(fmt::format("{} | {}{}", words, val_words(last), all_eta()));
      }
      if (last.train_loss) words += fmt::format(" | loss {:.4f}", *last.train_loss);
      line += (line.empty() ? "" : " || ") + words;
    }
    if (!line.empty()) draw(line + all_eta());
  }

  const Experiment& experiment_;
  std::int64_t jobs_;
  ConsoleOptions console_;
  std::vector<double> seconds_per_step_;  // per arm, evaluations included; 0: not known yet
  std::deque<const ExperimentRun*> pending_;
  std::list<Active> active_;
  const ExperimentRun* waiting_for_ = nullptr;
  LabOutcome outcome_;
  std::int64_t polls_ = 0;
  bool drawn_ = false;
};

}  // namespace

bool is_finished(const ExperimentRun& run) {
  const std::int64_t end = run.resolved.max_iters;
  const auto saved = list_checkpoints(run.directory + "/checkpoints");
  return read_run_log(run.directory).evaluation(end) != nullptr && !saved.empty() &&
         saved[0].step >= end;
}

LabOutcome run_experiment(const Experiment& experiment, std::int64_t jobs) {
  return Runner(experiment, jobs)();
}

}  // namespace duet
