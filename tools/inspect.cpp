// duet inspect: what a run, a checkpoint, a safetensors file or a tokenizer holds.
#include <fmt/format.h>

#include <algorithm>

#include "models/enum_names.h"
#include "runtime/error.h"
#include "runtime/file_system.h"
#include "runtime/safetensors.h"
#include "tools/commands.h"
#include "tools/flags.h"
#include "tools/output.h"
#include "train/checkpoint.h"
#include "train/command_line.h"
#include "train/tensor_facts.h"
#include "train/text.h"

namespace duet {
namespace {

struct Notices final : Reporter {
  void on_notice(const std::string& text) override { note(text); }
};

void print_tensors(const SafetensorsFile& file) {
  std::size_t widest = 4;
  for (const std::string& name : file.names()) widest = std::max(widest, printable(name).size());
  std::int64_t elements = 0, bytes = 0;
  for (const std::string& name : file.names()) {
    const SafetensorsEntry& entry = file.entry(name);
    elements += entry.shape.numel();
    bytes += entry.end - entry.begin;
    const bool has_values = entry.dtype.has_value() && is_floating(*entry.dtype);
    const TensorFacts facts = has_values ? facts_of(file.load(name)) : TensorFacts{};
    write_out(fmt::format("  {:<{}}  {:<5} {}{}\n", printable(name), widest, entry.stored_dtype,
                          concat(entry.shape), facts.finite() ? "" : "  " + words_of(facts)));
  }
  write_out(fmt::format("  {} tensors, {} elements, {}\n", file.names().size(),
                        format_count(elements), format_bytes(static_cast<std::uint64_t>(bytes))));
  for (const auto& [key, value] : file.metadata()) {
    write_out(fmt::format("  metadata {} = {}\n", printable(key), printable(value)));
  }
}

std::string data_of(const TrainState& s) {
  if (s.data.path.empty()) return "none: the task makes its own examples";
  return fmt::format("{}, {} bytes, hash {}", printable(s.data.path, 4096),
                     format_count(static_cast<std::int64_t>(s.data.bytes)), printable(s.data.hash));
}

void print_state(const TrainState& s) {
  const ModelConfig& m = s.model;
  write_out(fmt::format(
      "  step       {} ({} tokens, {})\n"
      "  run        {}, seed {}, {}\n"
      "  model      {} {} x {} x {} heads, block {}, vocabulary {}, {}\n"
      "  coupling   {}\n"
      "  optimizer  AdamW, {}, beta1 {}, beta2 {}, eps {}, weight_decay {}\n"
      "  tokenizer  {}, hash {}\n"
      "  data       {}\n",
      s.step, format_count(s.tokens), counted(s.skipped_steps, "skipped step"), printable(s.run_id),
      s.seed, counted(s.threads, "thread"), enum_name(m.family), m.n_layer, m.n_embd, m.n_head,
      m.block_size, m.vocab_size, printable(s.dtype), enum_name(m.coupling),
      counted(s.optimizer_steps, "step"), format_number(s.adamw.beta1),
      format_number(s.adamw.beta2), format_number(s.adamw.eps), format_number(s.adamw.weight_decay),
      printable(s.tokenizer), printable(s.tokenizer_hash), data_of(s)));
  if (s.best_step >= 0) {
    write_out(fmt::format("  best       val loss {:.4f} at step {}\n", s.best_loss, s.best_step));
  }
}

void inspect_checkpoint(const std::string& path) {
  Notices notices;
  const CheckpointReader checkpoint =
      CheckpointReader::open(path, notices, /*with_optimizer=*/true);
  write_out(fmt::format("checkpoint {}\n", printable(checkpoint.directory(), 4096)));
  print_state(checkpoint.state());
  for (const char* name : {"model.safetensors", "optim.safetensors"}) {
    write_out(fmt::format("{}\n", name));
    print_tensors(SafetensorsFile::open(checkpoint.directory() + "/" + name));
  }
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

int run_inspect(const Arguments& arguments) {
  std::string path;
  Flags flags("duet inspect", "PATH",
              "tensors, shapes, types, metadata and state of a run, a checkpoint or a .safetensors "
              "file; or what a tokenizer.json holds");
  flags.positional(&path, "PATH", /*required=*/true);
  if (!flags.parse(arguments)) return 0;
  if (file_system().is_directory(path)) {
    inspect_checkpoint(path);
  } else if (ends_with(path, ".json")) {
    const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(path);
    write_out(fmt::format("tokenizer {}\n  kind       {}\n  vocabulary {}\n  hash       {}\n",
                          printable(path, 4096), tokenizer->name(), tokenizer->vocab_size(),
                          tokenizer->hash()));
  } else {
    const std::string head = file_system().open(path).head(64);
    check(!looks_like_text(head), ErrorKind::file, printable(path, 400),
          ": got a text file that begins with ", in_quotes(head.substr(0, 24)),
          ", expected a run, a checkpoint, a .safetensors file or a tokenizer.json; a "
          "configuration is shown by ",
          advised({"train", path, "--print-config"}));
    const SafetensorsFile file = SafetensorsFile::open(path);
    write_out(fmt::format("safetensors {}\n", printable(path, 4096)));
    print_tensors(file);
  }
  return 0;
}

}  // namespace duet
