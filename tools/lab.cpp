// duet lab: an experiment with several arms and seeds, and its report.
#include <fmt/format.h>

#include <set>

#include "runtime/error.h"
#include "runtime/file_system.h"
#include "runtime/printable.h"
#include "tools/commands.h"
#include "tools/examples.h"
#include "tools/flags.h"
#include "tools/lab_runner.h"
#include "tools/output.h"
#include "tools/signals.h"
#include "train/command_line.h"
#include "train/lab/report.h"
#include "train/lab/run_log.h"
#include "train/run_checks.h"
#include "train/run_directory.h"
#include "train/text.h"

namespace duet {
namespace {

void print_end(const LabSummary& summary) {
  const std::string directory = printable(summary.record.directory, 4096);
  write_progress(fmt::format("\n{}\nreport     {}/report.md\n           {}/report.html\n",
                             report_table(summary), directory, directory));
}

template <class T>
std::string number(const std::vector<T>& of, const char* what) {
  return counted(static_cast<std::int64_t>(of.size()), what);
}

// Each run is a process of its own: what this machine cannot run is refused here, once.
void check_devices(const Experiment& experiment) {
  std::set<std::string> noted;
  for (const ExperimentRun& run : experiment.runs) {
    if (is_finished(run) || is_marked_diverged(run.directory)) continue;
    const DeviceChoice choice = choose_device(run.resolved.device);
    training_dtype(run.resolved, choice.device);
    if (noted.insert(run.resolved.device).second) note_fallback(run.resolved.device, choice);
  }
}

int compare(const Arguments& arguments) {
  std::string file;
  std::int64_t jobs = 1;
  std::vector<Setting> settings;
  Flags flags(
      "duet lab compare", "EXPERIMENT.toml [--key value ...]",
      "trains every arm with every seed, one `duet train` each, and compares them pair by pair;\n"
      "  run it again to go on: what is done is not repeated. The file holds keys of train for "
      "all\n"
      "  runs, seeds = [1, 2], and an [[arm]] with a name and its own keys for each arm; see\n"
      "  tools/experiments/. Without out_dir the runs lie in runs/ and the file's name");
  flags.positional(&file, "EXPERIMENT.toml", /*required=*/true);
  flags.integer("jobs", &jobs, 1, 256, "runs at once; they share the threads");
  flags.configuration(&settings);
  if (!flags.parse(arguments)) return 0;

  Experiment experiment = plan_experiment(file, settings);
  const std::string& directory = experiment.record.directory;
  std::vector<std::string> again = {"lab", "compare"};
  again.insert(again.end(), arguments.begin(), arguments.end());
  experiment.record.command_line = again;
  experiment.record.command_line.insert(experiment.record.command_line.begin(), "duet");
  check_existing(experiment);
  check_devices(experiment);
  RunDirectory lock(directory);
  lock.keep();
  lock.remove_leftovers();
  for (const char* below : {"configs", "logs", "runs"}) lock.make_directory(below);
  write_record(experiment.record);
  for (const ExperimentRun& run : experiment.runs) {
    file_system().replace_file(run.config_path, run.config);
  }
  write_progress(fmt::format("{} x {} = {} in {}\n", number(experiment.record.arms, "arm"),
                             number(experiment.record.seeds, "seed"),
                             number(experiment.runs, "run"), printable(directory, 4096)));
  install_stop_signals();
  const LabOutcome outcome = run_experiment(experiment, jobs);
  print_end(write_reports(experiment.record));
  if (outcome.signal != 0) {
    write_progress("go on      " + advised(again) + "\n");
    return 128 + outcome.signal;
  }
  return outcome.code;
}

int report(const Arguments& arguments) {
  std::string directory;
  Flags flags("duet lab report", "DIR",
              "writes DIR/report.md and DIR/report.html from what is there");
  flags.positional(&directory, "DIR", /*required=*/true);
  if (!flags.parse(arguments)) return 0;
  print_end(write_reports(read_record(directory)));
  return 0;
}

}  // namespace

int run_lab(const Arguments& arguments) {
  const std::string help =
      "duet lab NAME ...\n  experiments with several arms and seeds; duet lab NAME --help tells "
      "more\n\n"
      "  compare EXPERIMENT.toml    arms against arms, seed by seed; restartable\n"
      "  report DIR                 the reports of an experiment, also while it runs\n";
  check(!arguments.empty(), ErrorKind::usage,
        "duet lab: NAME is missing: expected compare or report; see ", advised({"lab", "--help"}));
  const Arguments rest(arguments.begin() + 1, arguments.end());
  const std::string& name = arguments.front();
  if (name == "compare") return compare(rest);
  if (name == "report") return report(rest);
  check(name == "--help" || name == "-h", ErrorKind::usage, "duet lab: got ", in_quotes(name),
        ", expected compare or report; see ", advised({"lab", "--help"}));
  write_out(help + examples("duet lab"));
  return 0;
}

}  // namespace duet
