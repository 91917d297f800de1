#include "train/config_keys.h"

#include <algorithm>
#include <iterator>
#include <type_traits>

#include "models/enum_names.h"
#include "runtime/cpu/openmp.h"
#include "runtime/error.h"
#include "train/command_line.h"
#include "train/device_choice.h"
#include "train/text.h"

namespace duet {

template <>
inline constexpr EnumTable<ScheduleKind, 4> kEnumNames<ScheduleKind>{
    {{ScheduleKind::cosine, "cosine"},
     {ScheduleKind::linear, "linear"},
     {ScheduleKind::constant, "constant"},
     {ScheduleKind::wsd, "wsd"}}};

template <>
inline constexpr EnumTable<TaskKind, 2> kEnumNames<TaskKind>{
    {{TaskKind::text, "text"}, {TaskKind::mqar, "mqar"}}};

template <>
inline constexpr EnumTable<TraceNonfinite, 3> kEnumNames<TraceNonfinite>{
    {{TraceNonfinite::off, "off"},
     {TraceNonfinite::sample, "sample"},
     {TraceNonfinite::all, "all"}}};

namespace {

constexpr std::int64_t kMany = std::int64_t{1} << 40;
constexpr std::int64_t kWide = std::int64_t{1} << 20;
constexpr double kHuge = 1e9;

// A member of RunConfig, or of its model, as a function.
template <auto Member>
constexpr auto at() {
  if constexpr (requires(RunConfig & c) { c.*Member; }) {
    return +[](RunConfig & c) -> auto& { return c.*Member; };
  } else {
    return +[](RunConfig & c) -> auto& { return c.model.*Member; };
  }
}

template <auto Member>
using FieldType = std::remove_reference_t<decltype(at<Member>()(std::declval<RunConfig&>()))>;

// An enumeration: its words are those of kEnumNames.
template <auto Member>
ChoiceKey choice() {
  using E = FieldType<Member>;
  ChoiceKey key{[](RunConfig& c) { return enum_name(at<Member>()(c)); },
                [](RunConfig& c, std::string_view word) {
                  at<Member>()(c) = enum_from_name<E>(word).value();
                },
                {},
                {}};
  for (const auto& [value, word] : kEnumNames<E>) key.names.push_back(word);
  return key;
}

// A text that has few forms.
template <auto Member>
ChoiceKey word(std::vector<std::string_view> names, std::vector<AbsentChoice> absent) {
  return {[](RunConfig& c) { return std::string_view(at<Member>()(c)); },
          [](RunConfig& c, std::string_view chosen) { at<Member>()(c) = chosen; }, std::move(names),
          std::move(absent)};
}

ChoiceKey device_choices() {
  ChoiceKey key = word<&RunConfig::device>({"auto", "cpu", "cuda"}, {});
  key.meaning = device_key;
  return key;
}

using M = ModelConfig;
using R = RunConfig;
using enum KeyGroup;

std::vector<ConfigKey> make_table() {
  return {
      {"preset", model, TextKey{at<&R::preset>(), "a preset's name"},
       "a named model: tiny, small, nano, 60m, 150m, 350m, 455m", true},
      {"family", model, choice<&M::family>(),
       "llama: RMSNorm, SwiGLU, RoPE; gpt2: LayerNorm, GELU, learned positions", true},
      {"n_layer", model, IntegerKey{at<&M::n_layer>(), 0, 10'000}, "blocks", true},
      {"n_head", model, IntegerKey{at<&M::n_head>(), 1, 65536}, "query heads; divides n_embd",
       true},
      {"n_kv_head", model, IntegerKey{at<&M::n_kv_head>(), 0, 65536},
       "key and value heads; divides n_head; 0: n_head", true},
      {"n_embd", model, IntegerKey{at<&M::n_embd>(), 1, kWide}, "width", true},
      {"d_ff", model, IntegerKey{at<&M::d_ff>(), 0, kWide}, "width of the MLP; 0: 4 x n_embd",
       true},
      {"block_size", model, IntegerKey{at<&M::block_size>(), 1, kWide}, "tokens of context", true},
      {"vocab_size", model, IntegerKey{at<&M::vocab_size>(), 0, 2'147'483'647},
       "rows of the embedding; 0: the tokenizer's", true},
      {"dropout", model, NumberKey{at<&M::dropout>(), 0, 1, false, true}, "probability of a zero"},
      {"bias", model, BooleanKey{at<&M::bias>()}, "biases in linear layers and norms", true},
      {"activation", model, choice<&M::activation>(), "of the MLP", true},
      {"scoring", model, choice<&M::scoring>(),
       "softmax; diff, diff_v2: the difference of two maps", true},

      {"coupling", coupling, choice<&M::coupling>(), "how queries and keys move before scoring",
       true},
      {"coupling_steps", coupling, IntegerKey{at<&M::coupling_steps>(), 1, 64}, "updates n", true},
      {"coupling_hidden", coupling, IntegerKey{at<&M::coupling_hidden>(), 1, 65536},
       "hidden width of f, or of U", true},
      {"coupling_sharing", coupling, choice<&M::coupling_sharing>(),
       "who shares one f; dt is each head's own", true},
      {"coupling_dt", coupling, NumberKey{at<&M::coupling_dt>(), -100, 100},
       "step size, or its first value", true},
      {"coupling_dt_mode", coupling, choice<&M::coupling_dt_mode>(), "how the step size is learned",
       true},
      {"coupling_rope", coupling, choice<&M::coupling_rope>(),
       "couple before or after the rotation", true},
      {"coupling_layers", coupling, ListKey{at<&M::coupling_layers>(), 0, 9'999},
       "layers that couple, as [0, 2]; []: all", true},
      {"coupling_run_back", coupling, BooleanKey{at<&M::coupling_run_back>()},
       "backward inverts the coupling instead of keeping its input", true},

      {"data", data, TextKey{at<&R::data>(), "a path"}, "training text"},
      {"val_data", data, TextKey{at<&R::val_data>(), "a path"},
       "validation text; default: the last 10 % of data"},
      {"tokenizer", data, TextKey{at<&R::tokenizer>(), "byte, or a path"}, "byte, or a path", true},
      {"strict_utf8", data, BooleanKey{at<&R::strict_utf8>()},
       "refuse text that is not UTF-8, with the offset"},
      {"task", data, choice<&R::task>(), "text, or recall of key-value pairs, which needs no data",
       true},
      {"mqar_pairs", data, IntegerKey{at<&R::mqar_pairs>(), 1, kWide},
       "task mqar: pairs in an example of block_size tokens", true},
      {"mqar_random_non_queries", data, BooleanKey{at<&R::mqar_random_non_queries>()},
       "task mqar: fill with any ids instead of 0", true},
      {"mqar_examples", data, IntegerKey{at<&R::mqar_examples>(), 0, kMany},
       "task mqar: size of the training set; 0: fresh examples every step", true},

      {"batch_size", training, IntegerKey{at<&R::batch_size>(), 1, kWide},
       "windows of a micro-batch"},
      {"gradient_accumulation_steps", training,
       IntegerKey{at<&R::gradient_accumulation_steps>(), 1, kWide}, "micro-batches of a step"},
      {"max_iters", training, IntegerKey{at<&R::max_iters>(), 0, kMany}, "steps of the run"},
      {"learning_rate", training, NumberKey{at<&R::learning_rate>(), 0, 1000}, "highest rate"},
      {"min_lr", training, NumberKey{at<&R::min_lr>(), -1, 1000},
       "rate at the end; -1: learning_rate / 10"},
      {"warmup_iters", training, IntegerKey{at<&R::warmup_iters>(), 0, kMany},
       "steps of linear warm-up; unless given, at most a tenth of max_iters"},
      {"schedule", training, choice<&R::schedule>(), "of the rate after the warm-up"},
      {"weight_decay", training, NumberKey{at<&R::weight_decay>(), 0, 1000},
       "on tensors of two or more dimensions"},
      {"beta1", training, NumberKey{at<&R::beta1>(), 0, 1, false, true}, "of AdamW"},
      {"beta2", training, NumberKey{at<&R::beta2>(), 0, 1, false, true}, "of AdamW"},
      {"adam_eps", training, NumberKey{at<&R::adam_eps>(), 0, 1, true, false}, "of AdamW"},
      {"grad_clip", training, NumberKey{at<&R::grad_clip>(), 0, kHuge},
       "largest gradient norm; 0: off"},
      {"seed", training, SeedKey{at<&R::seed>()}, "of weights, data order and dropout"},
      {"max_nonfinite_steps", training, IntegerKey{at<&R::max_nonfinite_steps>(), 1, kWide},
       "non-finite steps in a row that stop the run"},
      {"trace_nonfinite", training, choice<&R::trace_nonfinite>(),
       "warn of ops whose outputs are not finite, before the loss shows it: off; sample: look at "
       "some, within 1 % of the time; all: at every one"},

      {"device", device, device_choices(), "where to train"},
      {"dtype", device,
       word<&R::dtype>({"float32", "bfloat16"}, {{"float16", "never trained in; use float32"}}),
       "element type of weights and activations"},
      {"recompute", device, choice<&M::recompute>(),
       "what backward computes again instead of keeping"},
      {"threads", device, IntegerKey{at<&R::threads>(), 0, kMostThreads},
       "CPU threads; 0: what the process may use"},
      {"memory_limit", device,
       TextKey{at<&R::memory_limit>(), kBytesForm,
               [](std::string_view text) { return text.empty() || parse_bytes(text); }},
       "most bytes of the process on the CPU, of tensors on a GPU; a run that is planned higher is "
       "refused; default: what the system or the device has free"},

      {"out_dir", run, TextKey{at<&R::out_dir>(), "a path"}, "the run's directory"},
      {"eval_interval", run, IntegerKey{at<&R::eval_interval>(), 1, kMany},
       "steps between evaluations"},
      {"eval_iters", run, IntegerKey{at<&R::eval_iters>(), 0, kMany},
       "micro-batches of an evaluation; 0: the whole validation part"},
      {"diagnostics", run, IntegerKey{at<&R::diagnostics>(), 0, 4096},
       "sequences whose attention maps an evaluation measures; 0: none"},
      {"log_interval", run, IntegerKey{at<&R::log_interval>(), 1, kMany},
       "steps between log lines"},
      {"save_interval", run, IntegerKey{at<&R::save_interval>(), 0, kMany},
       "steps between checkpoints; 0: with every evaluation"},
      {"keep", run, IntegerKey{at<&R::keep>(), 1, kWide},
       "newest checkpoints kept, beside the best"},
      {"init_from", run, TextKey{at<&R::init_from>(), "scratch, or a path"},
       "scratch, or a checkpoint whose weights start the run"},
      {"alloc_poison", run, BooleanKey{at<&R::alloc_poison>()},
       "fill fresh and freed memory with NaN, to find reads of it"},
      {"alloc_trace", run, TextKey{at<&R::alloc_trace>(), "a path"},
       "write every allocation to this file, for duet profile --replay"},
  };
}

}  // namespace

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> table = make_table();
  return table;
}

std::string_view group_title(KeyGroup group) {
  switch (group) {
    case model:
      return "model";
    case coupling:
      return "coupling";
    case data:
      return "data";
    case training:
      return "training";
    case device:
      return "device";
    case run:
      return "run";
  }
  return "?";
}

const ConfigKey* find_key(std::string_view name) {
  const std::string wanted = canonical_name(name);
  for (const ConfigKey& key : config_keys()) {
    if (key.name == wanted) return &key;
  }
  return nullptr;
}

const ConfigKey& require_key(std::string_view name, const std::string& where) {
  if (const ConfigKey* key = find_key(name)) return *key;
  std::vector<std::string_view> names;
  for (const ConfigKey& key : config_keys()) names.push_back(key.name);
  const std::string_view nearest = nearest_name(canonical_name(name), names);
  throw Error(ErrorKind::usage, concat(where, ": no key has this name",
                                       nearest.empty() ? "; see " + advised({"train", "--help"})
                                                       : concat("; did you mean ", nearest, "?")));
}

std::size_t index_of(const ConfigKey& key) {
  return static_cast<std::size_t>(&key - config_keys().data());
}

bool is_of_a_step(const ConfigKey& key) {
  if (key.group == model || key.group == coupling || key.group == device) return true;
  // The vocabulary comes from data, tokenizer and task, a model's shape from init_from; a plan
  // holds the evaluation's diagnostics too.
  constexpr std::string_view kOthers[] = {"data",       "tokenizer",  "task",
                                          "mqar_pairs", "batch_size", "gradient_accumulation_steps",
                                          "seed",       "init_from",  "diagnostics"};
  return std::find(std::begin(kOthers), std::end(kOthers), key.name) != std::end(kOthers);
}

bool is_boolean(const ConfigKey& key) { return std::holds_alternative<BooleanKey>(key.type); }

}  // namespace duet
