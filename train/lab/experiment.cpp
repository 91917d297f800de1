#include "train/lab/experiment.h"

#include <algorithm>
#include <filesystem>

#include "models/transformer.h"
#include "runtime/file_system.h"
#include "runtime/hash.h"
#include "train/run_directory.h"
#include "train/run_record.h"
#include "train/text.h"
#include "train/trainer.h"

namespace duet {
namespace {

Setting text_setting(const char* key, std::string value) {
  return {key, FlagText{std::move(value)}, concat("the experiment's ", key)};
}

bool names(const std::vector<Setting>& settings, std::string_view key) {
  return std::any_of(settings.begin(), settings.end(),
                     [&](const Setting& s) { return s.key == key; });
}

// The settings as lines of a file, one per key, the last one of each.
std::string toml_lines(const std::vector<Setting>& settings) {
  std::string out;
  for (const ConfigKey& key : config_keys()) {
    RunConfig config;
    bool given = false;
    for (const Setting& s : settings) {
      if (s.key != key.name) continue;
      set_value(key, s, config);
      given = true;
    }
    const std::string value = given ? toml_value(key, config) : "";
    if (!value.empty()) out += concat(key.name, " = ", value, "\n");
  }
  return out;
}

// As the run's own config.toml will have it.
RunConfig resolve(const std::vector<Setting>& settings) {
  RunConfig run = resolve_config({"", settings, /*resume=*/false}).run;
  run.model.vocab_size = resolve_model(run, *run_tokenizer(run)).vocab_size;
  return run;
}

// The same; what does not go together is the arm's fault, named with it.
RunConfig resolve_arm(const std::string& arm, const std::vector<Setting>& settings) {
  try {
    return resolve(settings);
  } catch (const Error& e) {
    throw Error(e.kind(), concat("arm ", printable(arm), ": ", e.what()));
  }
}

// Keys whose values may differ from those of a run that exists: they change no result.
bool is_free(std::string_view key) {
  return key == "out_dir" || key == "threads" || key == "keep" || key == "log_interval" ||
         key == "alloc_poison" || key == "alloc_trace";
}

std::vector<std::string> changed_keys(const RunConfig& before, const RunConfig& now) {
  std::vector<std::string> lines;
  for (const ConfigKey& key : config_keys()) {
    const std::string a = toml_value(key, before), b = toml_value(key, now);
    if (!is_free(key.name) && a != b) lines.push_back(concat(key.name, " ", a, " -> ", b));
  }
  return lines;
}

std::vector<std::string> unpaired_keys(const std::vector<ExperimentRun>& runs) {
  std::vector<std::string> out;
  for (const char* name : {"data", "val_data", "tokenizer", "block_size", "batch_size",
                           "gradient_accumulation_steps", "init_from"}) {
    const ConfigKey& key = *find_key(name);
    const std::string first = toml_value(key, runs.front().resolved);
    const bool same = std::all_of(runs.begin(), runs.end(), [&](const ExperimentRun& run) {
      return toml_value(key, run.resolved) == first;
    });
    if (!same) out.emplace_back(name);
  }
  return out;
}

std::vector<FileIdentity> identities(const std::vector<ExperimentRun>& runs) {
  std::vector<FileIdentity> out;
  for (const ExperimentRun& run : runs) {
    for (const std::string& path : {run.resolved.data, run.resolved.val_data}) {
      const bool known = std::any_of(out.begin(), out.end(),
                                     [&](const FileIdentity& f) { return f.path == path; });
      if (path.empty() || known) continue;
      const auto bytes = static_cast<std::uint64_t>(file_system().file_size(path));
      out.push_back({path, bytes, hash_file(path)});
    }
  }
  return out;
}

}  // namespace

Experiment plan_experiment(const std::string& file, const std::vector<Setting>& flags) {
  const ExperimentFile plan = read_experiment_file(file);
  for (const Setting& flag : flags) {
    check(flag.key != "seed", ErrorKind::usage, flag.where, ": the experiment has its own seeds; ",
          "change seeds in ", printable(file));
    for (const auto& arm : plan.arms) {
      check(!names(arm.settings, flag.key), ErrorKind::usage, flag.where, ": the arm ", arm.name,
            " of ", printable(file), " sets this key; remove the flag, or the key there");
    }
  }
  std::vector<Setting> common = plan.common;
  common.insert(common.end(), flags.begin(), flags.end());
  RunConfig probe;
  probe.out_dir = concat("runs/", std::filesystem::path(file).stem().string());
  for (const Setting& s : common) {
    if (s.key == "out_dir") set_value(*find_key("out_dir"), s, probe);
  }
  common.erase(std::remove_if(common.begin(), common.end(),
                              [](const Setting& s) { return s.key == "out_dir"; }),
               common.end());

  Experiment out;
  ExperimentRecord& record = out.record;
  record.directory = probe.out_dir;
  record.seeds = plan.seeds;
  record.common = toml_lines(common);
  for (const auto& arm : plan.arms)
    record.arms.push_back({arm.name, toml_lines(arm.settings), 0, 0});
  for (const std::int64_t seed : plan.seeds) {
    for (std::size_t arm = 0; arm < plan.arms.size(); ++arm) {
      ExperimentRun run;
      run.arm = arm;
      run.seed = seed;
      run.name = run_name(record.arms[arm], seed);
      run.directory = run_directory(record, arm, seed);
      run.config_path = concat(record.directory, "/configs/", run.name, ".toml");
      std::vector<Setting> settings = common;
      settings.insert(settings.end(), plan.arms[arm].settings.begin(),
                      plan.arms[arm].settings.end());
      settings.push_back(text_setting("seed", std::to_string(seed)));
      settings.push_back(text_setting("out_dir", run.directory));
      run.config = toml_lines(settings);
      run.resolved = resolve_arm(plan.arms[arm].name, settings);
      check(!run.resolved.data.empty() || run.resolved.task == TaskKind::mqar, ErrorKind::usage,
            "data: no training text is named; give --data FILE");
      if (seed == plan.seeds.front()) {
        Transformer shape(run.resolved.model, DType::f32, kMeta);
        record.arms[arm].parameters = count_parameters(shape);
        record.arms[arm].max_iters = run.resolved.max_iters;
      }
      out.runs.push_back(std::move(run));
    }
  }
  record.unpaired_keys = unpaired_keys(out.runs);
  record.files = identities(out.runs);
  return out;
}

void check_existing(const Experiment& experiment) {
  const ExperimentRecord& now = experiment.record;
  if (!file_system().exists(concat(now.directory, "/", kExperimentFile))) {
    check(!has_run(now.directory), ErrorKind::usage, now.directory,
          ": it holds a single run, not an experiment; choose another out_dir");
    std::vector<std::string> replaced = {now.directory + "/report.md",
                                         now.directory + "/report.html"};
    for (const ExperimentRun& run : experiment.runs) replaced.push_back(run.config_path);
    for (const std::string& path : replaced) {
      check(file_system().type(path) == FileType::missing, ErrorKind::usage, "out_dir: got ",
            in_quotes(now.directory), ", where ", printable(path, 400),
            " is a file that no experiment wrote: it would be replaced; choose another directory, "
            "or move the file away");
    }
    return;
  }
  for (const FileIdentity& before : read_record(now.directory).files) {
    for (const FileIdentity& file : now.files) {
      check(file.path != before.path || (file.bytes == before.bytes && file.hash == before.hash),
            ErrorKind::file, printable(file.path, 4096),
            " is not the file that the experiment began with: got ", file.bytes, " bytes, hash ",
            file.hash, ", expected ", before.bytes, " bytes, hash ", printable(before.hash),
            "; restore it, or choose another out_dir");
    }
  }
  for (const ExperimentRun& run : experiment.runs) {
    check(file_system().type(run.directory) != FileType::symlink, ErrorKind::usage,
          printable(run.directory, 4096),
          ": not a directory of the experiment: got a symbolic link; move it away");
    if (!has_run(run.directory)) continue;
    const RunConfig before = resolve(read_run_settings(run.directory).settings);
    std::string lines;
    for (const std::string& line : changed_keys(before, run.resolved)) lines += "\n  " + line;
    check(lines.empty(), ErrorKind::usage, printable(run.directory, 4096),
          ": the run was begun with other settings (then -> now):", lines,
          "\nput them back, remove that run, or choose another out_dir");
  }
}

}  // namespace duet
