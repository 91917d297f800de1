#include "train/hints.h"

#include <fmt/format.h>

#include "models/enum_names.h"
#include "models/flops.h"
#include "runtime/cpu/parallel.h"
#include "runtime/file_system.h"
#include "runtime/hash.h"
#include "train/text.h"

namespace duet {
namespace {

// Also of the same file under two names.
bool same_content(const std::string& a, const std::string& b) {
  return a == b ||
         (file_system().file_size(a) == file_system().file_size(b) && hash_file(a) == hash_file(b));
}

void data_hints(const RunConfig& run, const StartReport& start, std::vector<std::string>& out) {
  const std::int64_t block = start.model.block_size;
  if (start.train_tokens > 0 && block >= start.train_tokens) {
    out.push_back(fmt::format("block_size {} is longer than the training text ({} tokens)", block,
                              format_count(start.train_tokens)));
  }
  if (start.val_tokens > 0 && start.val_tokens < 8 * block) {
    out.push_back(
        fmt::format("the validation text is {} tokens, {:.1f} windows of {}: its loss "
                    "will be noisy; use a longer text or name val_data",
                    format_count(start.val_tokens),
                    static_cast<double>(start.val_tokens) / static_cast<double>(block), block));
  }
  if (!run.val_data.empty() && same_content(run.data, run.val_data)) {
    out.push_back(
        "val_data holds the same text as data: its loss says nothing about text that the model has "
        "not seen; leave val_data out to set the last 10 % of data aside");
  }
  constexpr double kManyEpochs = 20;
  const double epochs = start.train_tokens > 0 ? static_cast<double>(run.max_iters) *
                                                     static_cast<double>(start.tokens_per_step) /
                                                     static_cast<double>(start.train_tokens)
                                               : 0;
  if (epochs > kManyEpochs && run.model.dropout == 0) {
    out.push_back(
        fmt::format("the run reads the text {:.0f} times: expect the validation loss to "
                    "rise again; use more text, fewer steps or dropout",
                    epochs));
  }
}

void training_hints(const ResolvedConfig& config, std::vector<std::string>& out) {
  const RunConfig& run = config.run;
  constexpr double kHighRate = 1e-2;
  if (run.learning_rate > kHighRate) {
    out.push_back(fmt::format("learning_rate {} is high for AdamW; usual is 1e-4 to 3e-3",
                              format_number(run.learning_rate)));
  }
  if (run.learning_rate == 0) out.push_back("learning_rate 0 trains nothing");
  if (run.warmup_iters * 2 > run.max_iters && run.max_iters > 0) {
    out.push_back(fmt::format("the warm-up ({}) is most of the run ({})",
                              counted(run.warmup_iters, "step"), counted(run.max_iters, "step")));
  }
  if (run.grad_clip == 0) out.push_back("grad_clip 0: no clipping, one bad batch can ruin the run");
  if (run.threads > available_threads()) {
    out.push_back(fmt::format("threads {} is more than the {} CPUs this process may use: slower",
                              run.threads, available_threads()));
  }
  const CouplingKind coupling = run.model.coupling;
  for (const ConfigKey& key : config_keys()) {
    if (run.task == TaskKind::text && key.name.substr(0, 5) == "mqar_" &&
        config.source(key.name) >= ConfigSource::file) {
      out.push_back(fmt::format("{} has no effect with task text", key.name));
    }
    const bool of_step = key.name == "coupling_dt" || key.name == "coupling_dt_mode";
    const bool unused =
        coupling == CouplingKind::none || (coupling == CouplingKind::affine && of_step);
    if (unused && key.group == KeyGroup::coupling && key.name != "coupling" &&
        config.source(key.name) >= ConfigSource::file) {
      out.push_back(
          fmt::format("{} has no effect with coupling {}{}", key.name, enum_name(coupling),
                      coupling == CouplingKind::affine ? ", which has no step size" : ""));
    }
  }
}

// The names of the large presets are their sizes at GPT-2's vocabulary; on bytes the table of
// embeddings is much smaller.
void preset_hints(const ResolvedConfig& config, const StartReport& start,
                  std::vector<std::string>& out) {
  const RunConfig& run = config.run;
  if (run.preset.empty() || run.task != TaskKind::text || !start.resumed_from.empty()) return;
  const std::int64_t own = preset(run.preset, start.model.family).vocab_size;
  if (own == start.model.vocab_size || config.given("vocab_size")) return;
  ModelConfig named = start.model;
  named.vocab_size = own;
  named.valid_vocab = 0;
  out.push_back(fmt::format(
      "preset {} has {} parameters here, because the vocabulary is the tokenizer's {} instead of "
      "the preset's {}, where it has {}",
      run.preset, format_count(start.parameters), format_count(start.model.vocab_size),
      format_count(own), format_count(parameters_of(named))));
}

}  // namespace

std::vector<std::string> hints(const ResolvedConfig& config, const StartReport& start) {
  std::vector<std::string> out;
  preset_hints(config, start, out);
  data_hints(config.run, start, out);
  training_hints(config, out);
  const std::int64_t padding = start.model.vocab_size - start.model.valid_vocab;
  if (start.model.valid_vocab > 0 && padding > start.model.valid_vocab) {
    out.push_back(fmt::format(
        "vocab_size {} is far more than the tokenizer's {}: {} rows of the embedding ({} "
        "parameters) are padding",
        format_count(start.model.vocab_size), format_count(start.model.valid_vocab),
        format_count(padding), format_count(padding * start.model.n_embd)));
  }
  return out;
}

}  // namespace duet
