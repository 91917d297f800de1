#include "train/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "runtime/file_system.h"
#include "train/checkpoint.h"
#include "train/config_file.h"
#include "train/mqar.h"
#include "train/run_directory.h"
#include "train/run_record.h"
#include "train/text.h"

namespace duet {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;  // of a step

const Setting* find(const std::vector<Setting>& settings, std::string_view key) {
  // The last one: a flag may be repeated.
  const auto at = std::find_if(settings.rbegin(), settings.rend(),
                               [&](const Setting& s) { return s.key == key; });
  return at == settings.rend() ? nullptr : &*at;
}

std::size_t index(std::string_view key) { return index_of(*find_key(key)); }

void apply(const std::vector<Setting>& settings, ConfigSource source, ResolvedConfig& out) {
  for (const Setting& s : settings) {
    const ConfigKey& key = *find_key(s.key);
    set_value(key, s, out.run);
    out.sources[index_of(key)] = source;
  }
}

void check_preset(const std::string& where, const std::string& name) {
  const std::vector<std::string_view> known = preset_names();
  std::string list;
  for (const std::string_view one : known) list.append(list.empty() ? "" : ", ").append(one);
  const std::string_view nearest = nearest_name(name, known);
  check(std::find(known.begin(), known.end(), name) != known.end(), ErrorKind::usage, where,
        ": got ", in_quotes(name), ", expected one of ", list,
        nearest.empty() ? "" : concat("; did you mean ", nearest, "?"));
}

// A user may set a key in several places: the last one counts.
using Layers = std::vector<const std::vector<Setting>*>;

const Setting* last_said(const Layers& layers, std::string_view key) {
  const Setting* found = nullptr;
  for (const auto* layer : layers) {
    if (const Setting* s = find(*layer, key)) found = s;
  }
  return found;
}

// Of the task that the settings name.
std::vector<Setting> task_defaults(const Layers& layers) {
  const Setting* task = last_said(layers, "task");
  RunConfig probe;
  if (task != nullptr) set_value(*find_key("task"), *task, probe);
  return probe.task == TaskKind::mqar ? mqar_defaults() : std::vector<Setting>{};
}

// The model that `preset` and `family` stand for; both are keys of the settings.
void apply_preset(const Layers& layers, ResolvedConfig& out) {
  const Setting* named = last_said(layers, "preset");
  const Setting* family = last_said(layers, "family");
  RunConfig probe;
  if (named != nullptr) set_value(*find_key("preset"), *named, probe);
  if (family != nullptr) set_value(*find_key("family"), *family, probe);
  if (named != nullptr && !probe.preset.empty()) check_preset(named->where, probe.preset);
  if (probe.preset.empty()) {
    out.run.model = family_defaults(probe.model.family);
    out.run.model.vocab_size = 0;
    return;
  }
  const Family chosen = family != nullptr ? probe.model.family : preset_family(probe.preset);
  out.run.model = preset(probe.preset, chosen);
  out.run.model.vocab_size = 0;  // the tokenizer's
  for (const ConfigKey& key : config_keys()) {
    const bool of_model = key.group == KeyGroup::model || key.group == KeyGroup::coupling;
    if (of_model && key.name != "preset" && key.name != "vocab_size") {
      out.sources[index_of(key)] = ConfigSource::preset;
    }
  }
}

std::string list_lines(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += "\n  " + line;
  return out;
}

// Keys whose explicit value differs from that of `base`: those that make the model, and the others.
struct Differences {
  std::vector<std::string> shape, free;
};
Differences compare(const ResolvedConfig& now, const RunConfig& base, ConfigSource least) {
  Differences out;
  for (const ConfigKey& key : config_keys()) {
    if (now.sources[index_of(key)] < least || key.name == "out_dir") continue;
    const std::string before = toml_value(key, base), after = toml_value(key, now.run);
    if (before == after) continue;
    (key.shape ? out.shape : out.free)
        .push_back(fmt::format("{} {} -> {}", key.name, before, after));
  }
  return out;
}

// The checkpoint's model is the run's model; what the user says must agree.
void apply_checkpoint(ResolvedConfig& out) {
  const std::string& path = out.run.init_from;
  if (!file_system().is_directory(path))
    return;  // bare weights: the configuration says what they are
  Reporter silent;
  const CheckpointReader checkpoint = CheckpointReader::open(path, silent);
  RunConfig base = out.run;
  base.model = checkpoint.model_config();
  base.preset = out.run.preset;
  const RecomputeMode recompute = out.run.model.recompute;
  const double dropout = out.run.model.dropout;
  const Differences differ = compare(out, base, ConfigSource::preset);
  check(differ.shape.empty(), ErrorKind::usage, "init_from: ", printable(path),
        " holds another model: these keys differ (checkpoint -> asked for):",
        list_lines(differ.shape), "\nremove them: the checkpoint fixes the model's shape");
  out.run.model = base.model;
  out.run.model.recompute = recompute;
  out.run.model.dropout = dropout;
  for (const ConfigKey& key : config_keys()) {
    ConfigSource& source = out.sources[index_of(key)];
    const bool of_model = key.group == KeyGroup::model || key.group == KeyGroup::coupling;
    if (of_model && key.shape && source < ConfigSource::checkpoint && key.name != "preset") {
      source = ConfigSource::checkpoint;
    }
  }
}

void check_path(std::string_view key, const std::string& path) {
  check(path.empty() || path.front() != '~', ErrorKind::usage, key, ": got ", in_quotes(path),
        ", expected a path; ~ is not expanded here, write the whole path");
}

// The default of a run that names none: the key's own, but at most a tenth of the run.
std::int64_t derived_warmup(const RunConfig& run) {
  return std::min(run.warmup_iters, run.max_iters / 10);
}

// Whether the value follows from those of other keys and of the tokenizer: another run that starts
// from the same file derives its own.
bool is_derived(const ResolvedConfig& config, std::string_view key) {
  if (key == "warmup_iters") return !config.given(key);
  return key == "vocab_size" && config.source(key) == ConfigSource::standard;
}

void check_run(ResolvedConfig& config) {
  RunConfig& run = config.run;
  check_path("data", run.data);
  check_path("val_data", run.val_data);
  check_path("out_dir", run.out_dir);
  check_path("init_from", run.init_from);
  check_path("alloc_trace", run.alloc_trace);
  check(!run.out_dir.empty(), ErrorKind::usage,
        "out_dir: got \"\", expected a path; name the directory of the run");
  check(run.out_dir != run.data && run.out_dir != run.val_data, ErrorKind::usage, "out_dir: got ",
        in_quotes(run.out_dir), ", the path of the data; choose another directory");
  for (const char* name : {"/config.toml", "/env.json", "/metrics.jsonl", "/run.lock"}) {
    refuse_input("out_dir", run.out_dir + name, {run.data, run.val_data});
  }
  refuse_input("alloc_trace", run.alloc_trace, input_files(config));
  check(run.min_lr == -1 || run.min_lr >= 0, ErrorKind::usage, "min_lr: got ",
        format_number(run.min_lr), ", expected -1 (learning_rate / 10) or a number >= 0");
  check(run.min_lr <= run.learning_rate, ErrorKind::usage, "min_lr: got ",
        format_number(run.min_lr), ", expected at most learning_rate (",
        format_number(run.learning_rate), ")");
  if (!config.given("warmup_iters")) run.warmup_iters = derived_warmup(run);
  // A resumed run may be cut short within its warm-up.
  check(run.resume || run.warmup_iters <= run.max_iters, ErrorKind::usage, "warmup_iters: got ",
        run.warmup_iters, ", expected at most max_iters (", run.max_iters, ")");

  if (run.task == TaskKind::mqar) {
    validate(mqar_task(run));
    check(run.data.empty() && run.val_data.empty(), ErrorKind::usage, "data: got ",
          in_quotes(run.data.empty() ? run.val_data : run.data),
          ", expected none: task mqar makes its own examples; leave the key out");
  }
  ModelConfig model = run.model;
  if (model.vocab_size == 0) model.vocab_size = 256;  // the tokenizer's, not known yet
  validate(model);
  const std::int64_t window = run.batch_size * model.block_size;  // both are bounded: no overflow
  check(window <= kMostTokens / run.gradient_accumulation_steps, ErrorKind::usage,
        "batch_size: too many tokens in a step: got batch_size ", run.batch_size, " x block_size ",
        model.block_size, " x gradient_accumulation_steps ", run.gradient_accumulation_steps,
        ", expected a product of at most ", kMostTokens);
}

}  // namespace

ConfigSource ResolvedConfig::source(std::string_view key) const { return sources[index(key)]; }
bool ResolvedConfig::given(std::string_view key) const {
  return source(key) >= ConfigSource::checkpoint;
}

ResolvedConfig resolve_config(const ConfigRequest& request) {
  std::vector<Setting> file, saved;
  const std::vector<Setting>& flags = request.flags;
  if (!request.file.empty()) file = read_config_file(request.file);

  ResolvedConfig out;
  out.file = request.file;
  out.sources.assign(config_keys().size(), ConfigSource::standard);
  if (request.resume) {
    RunConfig probe;
    const Setting* out_dir = last_said({&file, &flags}, "out_dir");
    if (out_dir != nullptr) set_value(*find_key("out_dir"), *out_dir, probe);
    const std::string path = probe.out_dir + "/config.toml";
    check(file_system().exists(path) || has_run(probe.out_dir), ErrorKind::file, printable(path),
          ": missing: no run to resume there; name the run's directory with --out_dir, or start "
          "without --resume");
    RunSettings settings = read_run_settings(probe.out_dir);
    saved = std::move(settings.settings);
    out.notice = std::move(settings.notice);
    apply_preset({&saved}, out);
    apply(saved, ConfigSource::saved, out);
    const RunConfig base = out.run;
    apply(file, ConfigSource::file, out);
    apply(flags, ConfigSource::flag, out);
    for (const std::vector<Setting>* layer : {&std::as_const(file), &flags}) {
      const Setting* s = find(*layer, "init_from");
      check(s == nullptr || out.run.init_from == "scratch" || out.run.init_from == base.init_from,
            ErrorKind::usage,
            "resume and init_from: a run either goes on or starts from other "
            "weights; remove --resume or init_from");
    }
    const Differences differ = compare(out, base, ConfigSource::file);
    check(differ.shape.empty(), ErrorKind::usage, "resume: ", printable(probe.out_dir),
          " holds another model: these keys differ (saved -> asked for):", list_lines(differ.shape),
          "\nremove them, or start a new run with another out_dir");
    out.changes = differ.free;
    if (!out.given("warmup_iters") && derived_warmup(base) != derived_warmup(out.run)) {
      out.changes.push_back(
          fmt::format("warmup_iters {} -> {}", derived_warmup(base), derived_warmup(out.run)));
    }
    out.run.out_dir = probe.out_dir;  // the directory may have moved since it was written
    out.run.resume = true;
  } else {
    std::vector<Setting> task = task_defaults({&file, &flags});
    apply_preset({&task, &file, &flags}, out);
    if (last_said({&file, &flags}, "preset") != nullptr) {
      std::erase_if(task, [](const Setting& s) { return s.key == "n_head"; });  // the preset's
    }
    apply(task, ConfigSource::task, out);
    apply(file, ConfigSource::file, out);
    apply(flags, ConfigSource::flag, out);
    if (out.run.init_from != "scratch") apply_checkpoint(out);
  }
  check_run(out);
  return out;
}

std::vector<std::string> input_files(const ResolvedConfig& config) {
  const RunConfig& run = config.run;
  std::vector<std::string> out;
  for (const std::string& path :
       {config.file, run.data, run.val_data, run.tokenizer, run.init_from}) {
    if (!path.empty() && path != "byte" && path != "scratch") out.push_back(path);
  }
  return out;
}

void refuse_input(std::string_view what, const std::string& output,
                  const std::vector<std::string>& inputs) {
  if (output.empty()) return;
  const std::optional<FileId> id = file_system().id(output);
  for (const std::string& input : inputs) {
    const bool same = input == output || (id && file_system().id(input) == id);
    check(!same, ErrorKind::usage, what, ": got ", in_quotes(output), ", a file that is read here",
          input == output ? "" : concat(" (as ", printable(input, 400), ")"),
          ": it would be overwritten; choose another path");
  }
}

std::string config_toml(const ResolvedConfig& config) {
  const auto source_words = [&](ConfigSource source) -> std::string {
    switch (source) {
      case ConfigSource::standard:
        return "default";
      case ConfigSource::task:
        return "task";
      case ConfigSource::preset:
        return "preset " + printable(config.run.preset);
      case ConfigSource::checkpoint:
        return "checkpoint";
      case ConfigSource::saved:
        return "saved run";
      case ConfigSource::file:
        return "file " + printable(config.file);
      case ConfigSource::flag:
        return "flag";
    }
    return "?";
  };
  std::string out;
  const KeyGroup* last = nullptr;
  for (const ConfigKey& key : config_keys()) {
    const std::string value = toml_value(key, config.run);
    if (value.empty()) continue;
    if (last == nullptr || *last != key.group) {
      out += fmt::format("{}# {}\n", out.empty() ? "" : "\n", group_title(key.group));
    }
    last = &key.group;
    if (is_derived(config, key.name)) {
      // Not as a value: read back, it would count as given.
      out += fmt::format("# {:<26}= {:<16}  # derived\n", key.name, value);
      continue;
    }
    out += fmt::format("{:<28}= {:<16}  # {}\n", key.name, value,
                       source_words(config.sources[index_of(key)]));
  }
  return out;
}

std::string config_help(KeyFilter listed) {
  ResolvedConfig standard;
  standard.run.model.vocab_size = 0;
  std::string out;
  const KeyGroup* last = nullptr;
  for (const ConfigKey& key : config_keys()) {
    if (!listed(key)) continue;
    if (last == nullptr || *last != key.group)
      out += fmt::format("\n{}:\n", group_title(key.group));
    last = &key.group;
    std::string value = toml_value(key, standard.run);
    if (value == "\"\"") value = "";
    out += fmt::format("  --{:<28} {}{}\n", key.name, key.help,
                       value.empty() ? "" : " [" + value + "]");
    const auto* choice = std::get_if<ChoiceKey>(&key.type);
    if (choice != nullptr) out += fmt::format("  {:<30} {}\n", "", accepted_form(key));
  }
  return out;
}

}  // namespace duet
