// The start box of a run.
#include <fmt/format.h>

#include <algorithm>

#include "models/enum_names.h"
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
  if (m.valid_vocab > 0 && m.valid_vocab < m.vocab_size) {
    out += fmt::format(" ({} in use)", format_count(m.valid_vocab));
  }
  return out;
}

std::string coupling_words(const ModelConfig& m, std::int64_t parameters) {
  if (m.coupling == CouplingKind::none) return "none";
  std::string out = fmt::format("{}, n {}, hidden {} per {}, dt {} ({}), {} RoPE",
                                enum_name(m.coupling), m.coupling_steps, m.coupling_hidden,
                                enum_name(m.coupling_sharing), format_number(m.coupling_dt),
                                enum_name(m.coupling_dt_mode), enum_name(m.coupling_rope));
  if (m.family != Family::llama) out.resize(out.rfind(','));
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
  row("dtype", start.dtype);
  row("model", model_words(start.model));
  row("parameters", format_count(start.parameters));
  row("coupling", coupling_words(start.model, start.coupling_parameters));
  row("tokens/step",
      fmt::format("{} x {} x {} x 1 = {}  (batch x block x accumulation x ranks)", run.batch_size,
                  start.model.block_size, run.gradient_accumulation_steps,
                  format_count(start.tokens_per_step)));
  row("data", fmt::format("{}: {} tokens, {} for validation{}", printable(run.data, 4096),
                          format_count(start.train_tokens), format_count(start.val_tokens),
                          run.val_data.empty() ? "" : " from " + printable(run.val_data, 4096)));
  row("tokenizer", start.tokenizer);
  row("seed", std::to_string(run.seed));
  if (start.planned_bytes > 0)
    row("memory", format_bytes(start.planned_bytes) + " planned at peak");
  row("out_dir", printable(run.out_dir, 4096));
  if (!start.resumed_from.empty()) {
    row("resumed", fmt::format("step {} from {}", start.step, printable(start.resumed_from, 4096)));
  }

  // Longer values stand over the border: a box as wide as a path of 300 characters is none.
  constexpr std::size_t kWidest = 92;
  std::size_t inner = 0;
  for (const auto& [name, value] : rows) inner = std::max(inner, 13 + width(value));
  inner = std::min(inner, kWidest);
  const std::string title = fmt::format("- duet {} train ", version());
  std::vector<std::string> lines;
  lines.push_back(fmt::format("+{}{}+", title,
                              std::string(inner + 2 - std::min(inner + 2, title.size()), '-')));
  for (const auto& [name, value] : rows) {
    const std::size_t used = 13 + width(value);
    lines.push_back(fmt::format("| {:<13}{}{}", name, value,
                                used <= inner ? std::string(inner - used, ' ') + " |" : ""));
  }
  lines.push_back(fmt::format("+{}+", std::string(inner + 2, '-')));
  return lines;
}

}  // namespace duet
