// The start box of a run.
#include <fmt/format.h>

#include <algorithm>

#include "models/enum_names.h"
#include "runtime/cpu/cpu_info.h"
#include "runtime/printable.h"
#include "train/console.h"
#include "train/environment.h"
#include "train/text.h"

namespace duet {
namespace {

std::string model_words(const ModelConfig& m) {
  std::string heads = std::to_string(m.n_head);
  if (m.kv_heads() != m.n_head) heads += fmt::format("/{}", m.kv_heads());
  std::string out =
      fmt::format("{} {} x {} x {} heads, {} {}, block {}, vocabulary {}", enum_name(m.family),
                  m.n_layer, m.n_embd, heads, enum_name(m.activation), m.ff_width(), m.block_size,
                  format_count(m.vocab_size));
  if (m.scoring != Scoring::softmax) out += fmt::format(", scoring {}", enum_name(m.scoring));
  if (m.valid_vocab > 0 && m.valid_vocab < m.vocab_size) {
    out += fmt::format(" ({} in use)", format_count(m.valid_vocab));
  }
  return out;
}

std::string coupling_words(const ModelConfig& m, std::int64_t parameters) {
  if (m.coupling == CouplingKind::none) return "none";
  std::string out = fmt::format("{}, n {}, hidden {} per {}", enum_name(m.coupling),
                                m.coupling_steps, m.coupling_hidden, enum_name(m.coupling_sharing));
  if (m.has_step_size()) {
    out += fmt::format(", dt {} ({})", format_number(m.coupling_dt), enum_name(m.coupling_dt_mode));
  }
  if (m.family == Family::llama) out += fmt::format(", {} RoPE", enum_name(m.coupling_rope));
  if (m.coupling_run_back) out += ", run back";
  if (!m.coupling_layers.empty()) {
    out += ", layers";
    for (const std::int64_t layer : m.coupling_layers) out += fmt::format(" {}", layer);
  }
  return out + fmt::format(", {} parameters", format_count(parameters));
}

// Characters, not bytes: the right border must stand straight beside a path in any script.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

constexpr std::size_t kWidest = 92;     // of a row without its borders
constexpr std::size_t kNameWidth = 13;  // of a row's name

// A path in a row beside `beside` other characters: its middle gives way, so that the beginning and
// the file's name stay.
std::string path_words(const std::string& path, std::size_t beside) {
  std::string text = printable(path, 4096);
  const std::size_t room = std::max<std::size_t>(kWidest - kNameWidth - beside, 24);
  const std::size_t characters = width(text);
  if (characters <= room) return text;
  const std::size_t left = (room - 3) / 3, right = room - 3 - left;
  std::string out;
  std::size_t at = 0;
  for (std::size_t i = 0; i < text.size(); ++at) {
    const std::size_t length = std::max<std::size_t>(utf8_length(text.substr(i, 4)), 1);
    if (at == left) out += "...";
    if (at < left || at >= characters - right) out += text.substr(i, length);
    i += length;
  }
  return out;
}

}  // namespace

std::vector<std::string> start_box(const ResolvedConfig& config, const StartReport& start,
                                   const std::string& device_reason) {
  const RunConfig& run = config.run;
  std::vector<std::pair<std::string, std::string>> rows;
  const auto row = [&](const char* name, std::string value) {
    rows.emplace_back(name, std::move(value));
  };
  row("device", start.device + " (" + device_reason + ")");
  row("threads", threads_reason());
  if (const CpuInfo cpu = cpu_info(); cpu.isa_cap != "best") {
    row("DUET_ISA",
        fmt::format("{}: kernels {}, oneDNN {}", cpu.isa_cap, cpu.vector_target, cpu.onednn_isa));
  }
  row("dtype", start.dtype);
  row("model", model_words(start.model));
  row("parameters", format_count(start.parameters));
  row("coupling", coupling_words(start.model, start.coupling_parameters));
  row("tokens/step",
      fmt::format("{} x {} x {} x 1 = {}  (batch x block x accumulation x ranks)", run.batch_size,
                  start.model.block_size, run.gradient_accumulation_steps,
                  format_count(start.tokens_per_step)));
  const std::string tokens =
      fmt::format(": {} tokens, {} for validation", format_count(start.train_tokens),
                  format_count(start.val_tokens));
  if (run.task == TaskKind::mqar) {
    row("data",
        fmt::format("mqar: {} pairs in {} tokens, {} training examples", run.mqar_pairs,
                    start.model.block_size,
                    run.mqar_examples == 0 ? "always fresh" : format_count(run.mqar_examples)));
  } else {
    row("data", path_words(run.data, tokens.size()) + tokens);
  }
  if (!run.val_data.empty()) row("val_data", path_words(run.val_data, 0));
  row("tokenizer", start.tokenizer);
  row("seed", std::to_string(run.seed));
  if (start.planned_bytes > 0) {
    std::string memory = format_bytes(start.planned_bytes) + " planned at peak";
    if (start.process_bytes > 0) {
      memory += fmt::format(", the process at most {}", format_bytes(start.process_bytes));
    }
    row("memory", std::move(memory));
  }
  row("out_dir", path_words(run.out_dir, 0));
  if (!start.resumed_from.empty()) {
    const std::string step = fmt::format("step {} from ", start.step);
    row("resumed", step + path_words(start.resumed_from, step.size()));
  }

  std::size_t inner = 0;
  for (const auto& [name, value] : rows) inner = std::max(inner, kNameWidth + width(value));
  inner = std::min(inner, kWidest);
  const std::string title = fmt::format("- duet {} train ", version());
  std::vector<std::string> lines;
  lines.push_back(fmt::format("+{}{}+", title,
                              std::string(inner + 2 - std::min(inner + 2, title.size()), '-')));
  for (const auto& [name, value] : rows) {
    const std::size_t used = kNameWidth + width(value);
    lines.push_back(fmt::format("| {:<13}{}{}", name, value,
                                used <= inner ? std::string(inner - used, ' ') + " |" : ""));
  }
  lines.push_back(fmt::format("+{}+", std::string(inner + 2, '-')));
  return lines;
}

}  // namespace duet
