// duet train: a run from a configuration file and flags.
#include <fmt/format.h>

#include "runtime/cpu/parallel.h"
#include "runtime/error.h"
#include "tools/commands.h"
#include "tools/flags.h"
#include "tools/output.h"
#include "tools/signals.h"
#include "train/config.h"
#include "train/console.h"
#include "train/device_choice.h"
#include "train/environment.h"
#include "train/metrics.h"
#include "train/reporters.h"
#include "train/run_checks.h"
#include "train/run_record.h"
#include "train/saved_paths.h"
#include "train/trainer.h"

namespace duet {
namespace {

int train_resolved(ResolvedConfig& config, const Arguments& arguments) {
  install_stop_signals();
  RunConfig& run = config.run;
  check(!run.data.empty() || run.task == TaskKind::mqar, ErrorKind::usage,
        "data: no training text is named; give --data FILE");
  run.model.vocab_size = resolve_model(run, *run_tokenizer(run)).vocab_size;
  if (run.threads > 0) set_num_threads(static_cast<int>(run.threads));

  const DeviceChoice choice = choose_device(run.device);
  training_dtype(run, choice.device);
  Console console(ConsoleOptions::standard_output(), config, choice.reason);
  Metrics metrics(run.out_dir, run.log_interval, console);
  Reporters reporters({&console, &metrics});

  std::vector<std::string> command_line = {"duet", "train"};
  command_line.insert(command_line.end(), arguments.begin(), arguments.end());
  TrainContext context;
  context.reporter = &reporters;
  const std::string settings = config_toml(config);
  context.settings = recorded_settings(settings);
  context.run_files = {{"config.toml", run_record(settings)},
                       {"env.json", env_json(command_line, choice)}};
  const TrainResult result = train(run, context);
  if (result.step > 0) metrics.flush();
  console.finish(result);
  return result.signal == 0 ? 0 : 128 + result.signal;
}

}  // namespace

int run_train(const Arguments& arguments) {
  ConfigRequest request;
  bool print_config = false;
  Flags flags("duet train", "[config.toml] [--key value ...]",
              "trains; every key may stand in the file (TOML) or be a flag, and flags win");
  flags.toggle("resume", &request.resume, "go on with the run in out_dir");
  flags.toggle("print-config", &print_config, "show every value and its source, and stop");
  flags.positional(&request.file, "config.toml", /*required=*/false);
  flags.configuration(&request.flags);
  if (!flags.parse(arguments)) return 0;

  ResolvedConfig config = resolve_config(request);
  note(config.notice);
  if (print_config) {
    write_out(config_toml(config));
    return 0;
  }
  try {
    return train_resolved(config, arguments);
  } catch (const Error& error) {
    // A path that was saved and leads nowhere from here explains more than the name of a file.
    if (error.kind() == ErrorKind::file) check_saved_paths(config, arguments);
    throw;
  }
}

}  // namespace duet
