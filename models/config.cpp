#include "models/config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "models/enum_names.h"
#include "runtime/error.h"

namespace duet {
namespace {

// One row per preset; llama's d_ff is 4 * n_embd unless the row says otherwise.
struct PresetRow {
  std::string_view name;
  Family family;
  std::int64_t n_layer, n_embd, n_head, d_ff, block_size, vocab_size;
};

constexpr std::int64_t kGpt2Vocab = 50'257;

constexpr std::array<PresetRow, 7> kPresets{{
    {"tiny", Family::llama, 2, 64, 2, 0, 64, 256},
    {"small", Family::llama, 4, 256, 4, 0, 256, 256},
    {"nano", Family::gpt2, 4, 128, 4, 0, 64, 256},
    // The paper's shapes; it does not state a context, 1,024 is ours.
    {"60m", Family::llama, 8, 512, 8, 2048, 1024, kGpt2Vocab},
    {"150m", Family::llama, 12, 768, 12, 3072, 1024, kGpt2Vocab},
    {"350m", Family::llama, 24, 1024, 16, 2752, 1024, kGpt2Vocab},
    {"455m", Family::llama, 24, 1024, 16, 4096, 1024, kGpt2Vocab},
}};

const PresetRow& find_preset(std::string_view name) {
  for (const PresetRow& row : kPresets) {
    if (row.name == name) return row;
  }
  std::string known;
  for (const PresetRow& row : kPresets) known.append(known.empty() ? "" : ", ").append(row.name);
  throw Error(ErrorKind::usage, concat("preset: got \"", name, "\", expected one of ", known));
}

// The upper bounds are far above any model that fits a machine; they keep every product of sizes
// inside int64_t.
void check_range(std::string_view key, std::int64_t value, std::int64_t low, std::int64_t high) {
  check(low <= value && value <= high, ErrorKind::usage, key, ": out of range: got ", value,
        ", expected an integer from ", low, " to ", high);
}

void validate_shape(const ModelConfig& c) {
  check_range("n_layer", c.n_layer, 0, 10'000);
  check_range("n_head", c.n_head, 1, 65'536);
  check_range("n_embd", c.n_embd, 1, 1'048'576);
  check_range("n_kv_head", c.n_kv_head, 0, c.n_head);
  check_range("d_ff", c.d_ff, 0, 16'777'216);
  check_range("block_size", c.block_size, 1, 16'777'216);
  check_range("vocab_size", c.vocab_size, 1, 2'147'483'647);
  check_range("valid_vocab", c.valid_vocab, 0, c.vocab_size);
  check(c.n_embd % c.n_head == 0, ErrorKind::usage, "n_embd: not a multiple of n_head: got n_embd ",
        c.n_embd, " and n_head ", c.n_head, "; the nearest widths are ",
        std::max(c.n_embd / c.n_head, std::int64_t{1}) * c.n_head, " and ",
        (c.n_embd / c.n_head + 1) * c.n_head);
  check(c.n_head % c.kv_heads() == 0, ErrorKind::usage,
        "n_kv_head: does not divide n_head: got n_kv_head ", c.n_kv_head, " and n_head ", c.n_head,
        ", expected a divisor of ", c.n_head);
  if (c.scoring == Scoring::diff) {
    check(c.n_head % 2 == 0, ErrorKind::usage, "n_head: scoring diff pairs the heads: got n_head ",
          c.n_head, ", expected an even number; or use scoring diff-v2");
    check(c.kv_heads() % 2 == 0, ErrorKind::usage,
          "n_kv_head: scoring diff pairs the key heads too: got n_kv_head ", c.kv_heads(),
          ", expected an even divisor of n_head ", c.n_head, "; or use scoring diff-v2");
  }
  check(c.family != Family::llama || c.head_dim() % 2 == 0, ErrorKind::usage,
        "n_head: the head width n_embd / n_head must be even, because RoPE rotates pairs: got ",
        c.n_embd, " / ", c.n_head, " = ", c.head_dim(), "; change n_embd or n_head");
  check(c.dropout >= 0 && c.dropout < 1, ErrorKind::usage, "dropout: out of range: got ", c.dropout,
        ", expected 0 <= dropout < 1");
}

void validate_coupling(const ModelConfig& c) {
  check_range("coupling_steps", c.coupling_steps, 1, 64);
  check_range("coupling_hidden", c.coupling_hidden, 1, 65'536);
  check(std::isfinite(c.coupling_dt), ErrorKind::usage, "coupling_dt: not finite: got ",
        c.coupling_dt, ", expected a number such as 0.1");
  check(c.coupling_dt_mode != CouplingDtMode::softplus || c.coupling_dt > 0, ErrorKind::usage,
        "coupling_dt: softplus gives positive step sizes only: got ", c.coupling_dt,
        ", expected coupling_dt > 0; or use coupling_dt_mode raw");
  const bool invertible =
      c.coupling == CouplingKind::none || c.coupling == CouplingKind::leapfrog ||
      c.coupling == CouplingKind::symplectic_euler || c.coupling == CouplingKind::affine;
  check(!c.coupling_run_back || invertible, ErrorKind::usage, "coupling_run_back: coupling ",
        enum_name(c.coupling),
        " is not inverted: got true, expected false, or coupling leapfrog, symplectic-euler or "
        "affine");
  std::vector<std::int64_t> layers = c.coupling_layers;
  std::sort(layers.begin(), layers.end());
  for (const std::int64_t layer : layers) {
    check(0 <= layer && layer < c.n_layer, ErrorKind::usage, "coupling_layers: no such layer: got ",
          layer, ", expected layers of 0 to ", c.n_layer - 1, " (n_layer is ", c.n_layer, ")");
  }
  const auto twice = std::adjacent_find(layers.begin(), layers.end());
  check(twice == layers.end(), ErrorKind::usage, "coupling_layers: a layer is named twice: got ",
        twice == layers.end() ? 0 : *twice, ", expected each layer once");
}

}  // namespace

ModelConfig family_defaults(Family family) {
  ModelConfig c;
  c.family = family;
  if (family == Family::gpt2) {
    c.activation = Activation::gelu_tanh;
    c.bias = true;
    c.coupling = CouplingKind::none;
  }
  return c;
}

ModelConfig preset(std::string_view name, Family family) {
  const PresetRow& row = find_preset(name);
  ModelConfig c = family_defaults(family);
  c.n_layer = row.n_layer;
  c.n_embd = row.n_embd;
  c.n_head = row.n_head;
  c.d_ff = row.d_ff;
  c.block_size = row.block_size;
  c.vocab_size = row.vocab_size;
  return c;
}

Family preset_family(std::string_view name) { return find_preset(name).family; }

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  for (const PresetRow& row : kPresets) names.push_back(row.name);
  return names;
}

void validate(const ModelConfig& config) {
  validate_shape(config);
  validate_coupling(config);
}

}  // namespace duet
