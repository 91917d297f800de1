// duet bench train: a training step beside the floor of its arithmetic, or beside another setting.
#include "train/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/cpu/parallel.h"
#include "runtime/cpu/process_memory.h"
#include "runtime/error.h"
#include "runtime/printable.h"
#include "tools/commands.h"
#include "tools/flags.h"
#include "tools/output.h"
#include "train/command_line.h"
#include "train/config.h"
#include "train/device_choice.h"
#include "train/lab/statistics.h"
#include "train/profile/recorder.h"
#include "train/run_checks.h"
#include "train/text.h"

namespace duet {
namespace {

constexpr std::string_view kBenchBegins = "{\n  \"tok_per_sec\": ";  // the file of --json

// "coupling=none coupling_steps=3"
std::vector<Setting> parse_settings(const std::string& text) {
  std::vector<Setting> settings;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    check(equals != std::string::npos, ErrorKind::usage, "--against: got ", in_quotes(word),
          ", expected KEY=VALUE, several of them apart by spaces");
    const std::string name = word.substr(0, equals);
    const std::string where = concat("--against: ", printable(name));
    const ConfigKey& key = require_key(name, where);
    settings.push_back({std::string(key.name), FlagText{word.substr(equals + 1)},
                        concat("--against: ", key.name)});
  }
  return settings;
}

struct Rounds {
  std::vector<double> seconds, against_seconds, ratios, flops_rate, copy_rate;
  std::int64_t most_faults = 0;
};

// One step as `duet profile` takes it.
double profiled_seconds(StepBench& bench) {
  StepRecorder record(bench.device());
  record.begin_step();
  StepHooks hooks;
  hooks.on_phase = [&](StepPhase phase) { record.enter(phase); };
  const double seconds = bench.step(hooks).seconds;
  record.end_step();
  return seconds;
}

struct Other {
  std::unique_ptr<StepBench> bench;  // null: there is none
  bool profiled = false;
  double seconds() const { return profiled ? profiled_seconds(*bench) : bench->step().seconds; }
};

Rounds measure(StepBench& bench, const Other& against, Ceiling& ceiling, std::int64_t warmup,
               std::int64_t steps) {
  Rounds rounds;
  for (std::int64_t i = 0; i < warmup + steps; ++i) {
    const StepBench::Step step = bench.step();
    const double other = against.bench ? against.seconds() : 0;
    const double flops_rate = ceiling.flops_per_second();
    const double copy_rate = ceiling.bytes_per_second();
    if (i < warmup) continue;
    rounds.seconds.push_back(step.seconds);
    rounds.most_faults = std::max(rounds.most_faults, step.minor_faults);
    rounds.flops_rate.push_back(flops_rate);
    rounds.copy_rate.push_back(copy_rate);
    if (!against.bench) continue;
    rounds.against_seconds.push_back(other);
    rounds.ratios.push_back(step.seconds / other);
  }
  return rounds;
}

int bench_train(const Arguments& arguments) {
  ConfigRequest request;
  std::string against_text, json_path;
  std::int64_t steps = 20, warmup = 3;
  Flags flags("duet bench train", "[config.toml] [--key value ...]",
              "times whole training steps on random tokens beside what a product and a copy reach");
  flags.integer("steps", &steps, 1, 1'000'000, "steps that count");
  flags.integer("warmup", &warmup, 0, 1'000'000, "steps before them that do not");
  flags.text("against", &against_text, "\"KEY=VALUE ...\"",
             "a second model with these keys changed, one step of each in turn");
  bool profiled = false;
  flags.toggle("against-profiled", &profiled,
               "a second model whose steps are recorded as duet profile does: what that costs");
  flags.text("json", &json_path, "FILE", "the figures, for programs");
  flags.positional(&request.file, "config.toml", /*required=*/false);
  flags.configuration(&request.flags, is_of_a_step);
  if (!flags.parse(arguments)) return 0;
  const ResolvedConfig resolved = resolve_config(request);
  const AnswerFile json{"--json", json_path, {kBenchBegins}};
  check_answers({json}, input_files(resolved));

  const RunConfig named = resolved.run;
  const RunConfig run = without_data(named);
  if (run.threads > 0) set_num_threads(static_cast<int>(run.threads));
  const DeviceChoice choice = choose_device(run.device);
  note_fallback(run.device, choice);
  check_memory("bench", run);
  Other against{nullptr, profiled};
  if (!against_text.empty() || profiled) {
    for (Setting& setting : parse_settings(against_text)) request.flags.push_back(setting);
    const RunConfig other = without_data(resolve_config(request).run);
    check_memory("bench --against", other);
    against.bench = std::make_unique<StepBench>(other, training_device(other.device));
  }
  flags.note_ignored();
  note(vocabulary_note(named));
  const Device device = choice.device;
  StepBench bench(run, device);
  Ceiling ceiling(run.model, run.batch_size * run.model.block_size, device);
  const Rounds rounds = measure(bench, against, ceiling, warmup, steps);

  const std::uint64_t peak_rss = peak_resident_bytes();
  const double seconds = sample_median(rounds.seconds);
  const double flops_rate = sample_median(rounds.flops_rate),
               copy_rate = sample_median(rounds.copy_rate);
  const double floor = bench.flops() / flops_rate + bench.optimizer_bytes() / copy_rate;

  nlohmann::ordered_json out;
  out["tok_per_sec"] = static_cast<double>(bench.tokens()) / seconds;
  out["step_ms"] = seconds * 1e3;
  out["floor_ms"] = floor * 1e3;
  out["floor_share"] = floor / seconds;
  out["gflops"] = bench.flops() / seconds * 1e-9;
  out["peak_rss_bytes"] = peak_rss;
  out["minor_faults_max"] = rounds.most_faults;
  out["steps"] = steps;
  out["threads"] = num_threads();
  out["device"] = device_words(device);
  std::string text = fmt::format(
      "step           {:.1f} ms (median of {}), {} tok/s, {:.0f} GFLOP/s, {}\n"
      "floor          {:.1f} ms: {:.4g} GFLOP at {:.0f} GFLOP/s, {} of the optimizer at {}/s\n"
      "share          {:.1f} % of the floor's speed\n"
      "peak RSS       {}\n"
      "page faults    at most {} a step (minor)\n",
      seconds * 1e3, steps, format_short(static_cast<double>(bench.tokens()) / seconds),
      bench.flops() / seconds * 1e-9, counted(num_threads(), "thread"), floor * 1e3,
      bench.flops() * 1e-9, flops_rate * 1e-9,
      format_bytes(static_cast<std::uint64_t>(bench.optimizer_bytes())),
      format_bytes(static_cast<std::uint64_t>(copy_rate)), floor / seconds * 100,
      format_bytes(peak_rss), rounds.most_faults);
  if (against.bench) {
    if (profiled) against_text = against_text.empty() ? "profiled" : against_text + ", profiled";
    const auto [low, high] = std::minmax_element(rounds.ratios.begin(), rounds.ratios.end());
    out["against"] = against_text;
    out["against_step_ms"] = sample_median(rounds.against_seconds) * 1e3;
    out["ratio_median"] = sample_median(rounds.ratios);
    out["ratio_min"] = *low;
    out["ratio_max"] = *high;
    text +=
        fmt::format("against        {}: {:.1f} ms; ratio {:.3f} ({:.3f} to {:.3f}), step by step\n",
                    printable(against_text), sample_median(rounds.against_seconds) * 1e3,
                    sample_median(rounds.ratios), *low, *high);
  }
  write_answer(json, out.dump(2) + "\n");
  write_out(text);
  return 0;
}

}  // namespace

int run_bench(const Arguments& arguments) {
  const std::string what = arguments.empty() ? "" : arguments.front();
  check(what != "op", ErrorKind::usage, "duet bench op: not in this version yet");
  if (what == "--help" || what == "-h") return bench_train({"--help"});
  check(what == "train", ErrorKind::usage, "duet bench: got ", in_quotes(what),
        ", expected train; see ", advised({"bench", "train", "--help"}));
  return bench_train(Arguments(arguments.begin() + 1, arguments.end()));
}

}  // namespace duet
