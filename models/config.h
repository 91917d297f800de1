// ModelConfig: what a model is made of. Field names are the command line's keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace duet {

enum class Family : std::uint8_t { llama, gpt2 };
enum class Activation : std::uint8_t { swiglu, gelu, gelu_tanh };
// Scores to values: one softmax map; the difference of two (arXiv 2410.05258); its second version.
enum class Scoring : std::uint8_t { softmax, diff, diff_v2 };
enum class CouplingKind : std::uint8_t {
  none,
  euler,
  leapfrog,
  symplectic_euler,
  uncoupled,
  uncoupled_k,
  affine,
  hamiltonian_potential
};
enum class CouplingSharing : std::uint8_t { head, layer, model };
enum class CouplingDtMode : std::uint8_t { raw, softplus, fixed };
enum class CouplingRope : std::uint8_t { before, after };  // couple before or after the rotation
enum class RecomputeMode : std::uint8_t { none, mlp, attn, block };

struct ModelConfig {
  Family family = Family::llama;
  std::int64_t n_layer = 2;
  std::int64_t n_head = 2;
  std::int64_t n_kv_head = 0;  // 0: n_head
  std::int64_t n_embd = 64;
  std::int64_t d_ff = 0;  // 0: 4 * n_embd
  std::int64_t block_size = 64;
  std::int64_t vocab_size = 256;  // rows of the embedding; the tokenizer's, or more (padding)
  std::int64_t valid_vocab = 0;   // ids that exist; 0: vocab_size
  double dropout = 0;
  bool bias = false;
  Activation activation = Activation::swiglu;
  Scoring scoring = Scoring::softmax;

  CouplingKind coupling = CouplingKind::euler;
  std::int64_t coupling_steps = 1;
  std::int64_t coupling_hidden = 8;
  CouplingSharing coupling_sharing = CouplingSharing::head;
  double coupling_dt = 0.1;
  CouplingDtMode coupling_dt_mode = CouplingDtMode::raw;
  CouplingRope coupling_rope = CouplingRope::before;
  std::vector<std::int64_t> coupling_layers;  // empty: all
  // Backward inverts the map from its outputs instead of keeping its inputs.
  bool coupling_run_back = false;

  RecomputeMode recompute = RecomputeMode::none;

  std::int64_t head_dim() const { return n_embd / n_head; }
  std::int64_t kv_heads() const { return n_kv_head == 0 ? n_head : n_kv_head; }
  // Queries per token: diff_v2 has two for each head.
  std::int64_t query_heads() const { return scoring == Scoring::diff_v2 ? 2 * n_head : n_head; }
  std::int64_t ff_width() const { return d_ff == 0 ? 4 * n_embd : d_ff; }
  bool has_step_size() const {
    return coupling != CouplingKind::none && coupling != CouplingKind::affine;
  }
  bool is_coupled(std::int64_t layer) const {
    return coupling != CouplingKind::none &&
           (coupling_layers.empty() || std::find(coupling_layers.begin(), coupling_layers.end(),
                                                 layer) != coupling_layers.end());
  }
};

// The family's defaults: llama = RMSNorm, SwiGLU, RoPE, no biases, euler; gpt2 = LayerNorm,
// GELU-tanh, learned positions, biases, no coupling. Both tie the head to the embedding.
ModelConfig family_defaults(Family family);
// "tiny", "small", "nano", "60m", "150m", "350m", "455m"; throws Error(usage) listing them.
// vocab_size is the preset's own: 256 for tiny, small, nano; 50,257 for the paper's.
ModelConfig preset(std::string_view name, Family family);
Family preset_family(std::string_view name);  // the family a preset has when none is named
std::vector<std::string_view> preset_names();

// Throws Error(usage) naming key, value and accepted form for anything that does not fit together
// (n_embd % n_head, n_head % n_kv_head, odd head width with RoPE, layer out of range, ...).
void validate(const ModelConfig& config);

}  // namespace duet
