// duet profile: memory and time of a training step, by layer.
#include "train/profile/profile.h"

#include <algorithm>
#include <optional>

#include "runtime/cpu/parallel.h"
#include "runtime/live_limit.h"
#include "runtime/printable.h"
#include "tools/commands.h"
#include "tools/flags.h"
#include "tools/output.h"
#include "tools/profile_fit.h"
#include "tools/profile_replay.h"
#include "train/bench.h"
#include "train/config.h"
#include "train/device_choice.h"
#include "train/html.h"
#include "train/run_checks.h"

namespace duet {
namespace {

// How the files begin that the flags make: an older one may be replaced.
constexpr std::string_view kProfileBegins = "{\"version\":1,\"planned\":";
constexpr std::string_view kFitBegins = "{\n  \"limit_bytes\": ";
constexpr std::string_view kReplayBegins = "{\n  \"trace\": ";
constexpr std::string_view kTraceEventsBegin =
    "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"peak_bytes\":";

struct GivenFlag {
  std::string name, value;  // an empty value: not given
};

// Only a plan or a measured step has a page and a trace; one question at a time.
void refuse_conflicts(const std::vector<GivenFlag>& questions,
                      const std::vector<GivenFlag>& files) {
  std::string asked;
  for (const GivenFlag& flag : questions) {
    if (flag.value.empty()) continue;
    check(asked.empty(), ErrorKind::usage, "duet profile: got ", asked, " and ", flag.name,
          ", expected one of them; leave one out");
    asked = flag.name;
  }
  if (asked.empty() || asked == "--plan") return;
  for (const GivenFlag& flag : files) {
    check(flag.value.empty(), ErrorKind::usage, "duet profile: got ", asked, " and ", flag.name,
          ", but ", asked, " writes no such file; leave it out");
  }
}

// A measured profile poisons and traces memory as a run would.
bool is_profiled(const ConfigKey& key) {
  return is_of_a_step(key) || key.name == "alloc_poison" || key.name == "alloc_trace";
}

}  // namespace

int run_profile(const Arguments& arguments) {
  ConfigRequest request;
  ProfileOptions options;
  std::string json_path, html_path, trace_path, fit_limit, replay_path;
  std::int64_t depth = 3;
  bool plan = false;
  Flags flags("duet profile", "[config.toml] [--key value ...]",
              "where the memory and the time of a training step go, by layer (random tokens)");
  flags.toggle("plan", &plan, "walk the step without memory or device; nothing is run");
  flags.text(
      "fit", &fit_limit, "SIZE",
      "the largest batch_size for each recompute mode that fits into so much: 16GiB, 900MiB");
  flags.text(
      "replay", &replay_path, "FILE",
      "what the requests that --alloc_trace wrote reserve with this version; no step is run");
  flags.integer("steps", &options.steps, 1, 1'000, "steps that are timed");
  flags.integer("warmup", &options.warmup, 0, 1'000, "steps before them that are not");
  flags.integer("depth", &depth, 0, 100,
                "how deep the printed tree goes; the files hold all of it");
  flags.text("json", &json_path, "FILE", "the figures, for programs");
  flags.text("html", &html_path, "FILE", "a page: timeline, tree, and the blocks at the peak");
  flags.text("trace", &trace_path, "FILE", "Chrome's trace events, for Perfetto");
  flags.positional(&request.file, "config.toml", /*required=*/false);
  flags.configuration(&request.flags, is_profiled);
  if (!flags.parse(arguments)) return 0;
  refuse_conflicts({{"--fit", fit_limit}, {"--replay", replay_path}, {"--plan", plan ? "yes" : ""}},
                   {{"--html", html_path}, {"--trace", trace_path}});
  const ResolvedConfig resolved = resolve_config(request);
  const AnswerFile json{"--json", json_path, {kProfileBegins, kFitBegins, kReplayBegins}},
      html{"--html", html_path, {kPageBegins}}, trace{"--trace", trace_path, {kTraceEventsBegin}};
  std::vector<std::string> inputs = input_files(resolved);
  inputs.push_back(replay_path);
  check_answers({json, html, trace}, inputs);
  if (!replay_path.empty()) return profile_replay(replay_path, json);

  const RunConfig named = resolved.run;
  const RunConfig run = without_data(named);
  const auto tell = [&] {
    flags.note_ignored();
    note(vocabulary_note(named));
  };
  if (run.threads > 0) set_num_threads(static_cast<int>(run.threads));
  if (!fit_limit.empty()) {
    tell();
    return profile_fit(run, fit_limit, json);
  }
  const std::optional<std::uint64_t> limit = memory_limit_of(run);
  if (!plan) {
    const DeviceChoice choice = choose_device(run.device);
    note_fallback(run.device, choice);
    const auto of_tensors = tensor_limit(run, check_memory("profile", run));
    if (limit) set_live_limit(choice.device, *of_tensors);  // as a run under the limit has it
  }
  tell();
  Profile profile = plan ? plan_profile(run) : measure_profile(run, options);
  const MemoryPlan whole = plan ? plan_memory(run) : MemoryPlan{};
  profile.process_bytes = whole.process.resident;
  if (!json_path.empty()) write_answer(json, profile_json(profile) + "\n");
  if (!html_path.empty()) write_answer(html, profile_html(profile));
  if (!trace_path.empty()) write_answer(trace, profile_trace(profile));
  write_out(profile_text(profile, static_cast<int>(depth)));
  const std::uint64_t needed = std::max(profile.peak_bytes, profile.process_bytes);
  if (limit && needed > *limit) {
    write_out(concat("does not fit: ", needed - *limit, " bytes above memory_limit; --fit ",
                     run.memory_limit, " instead finds a batch that does\n"));
  }
  return 0;
}

}  // namespace duet
