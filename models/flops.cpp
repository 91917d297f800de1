#include "models/flops.h"

#include "models/transformer.h"

namespace duet {
namespace {

// Multiplications of one token's forward, each with an addition; of all layers.
struct Multiplies {
  double attention = 0, mlp = 0, head = 0;
};

Multiplies multiplies_per_token(const ModelConfig& config, std::int64_t t) {
  const auto c = static_cast<double>(config.n_embd);
  const auto d = static_cast<double>(config.head_dim());
  const auto heads = static_cast<double>(config.n_head);
  const auto q_heads = static_cast<double>(config.query_heads());
  const auto kv_heads = static_cast<double>(config.kv_heads());
  const auto f = static_cast<double>(config.ff_width());
  const auto vocab =
      static_cast<double>(config.valid_vocab == 0 ? config.vocab_size : config.valid_vocab);
  // Weights that a token is multiplied with.
  double projections = c * d * (heads + q_heads + 2 * kv_heads);
  if (config.scoring == Scoring::diff_v2) projections += c * heads;  // lambda
  const double mlp = c * f * (config.activation == Activation::swiglu ? 3 : 2);
  const auto hidden = static_cast<double>(config.coupling_hidden);
  // W1 and W2 at each evaluation of f, n or n + 1 of them; affine: two nets, each W1 and twice W2.
  // The force of a potential is W1 and w2 forth, and back: as much, and one column.
  const auto steps = static_cast<double>(config.coupling_steps);
  const bool potential = config.coupling == CouplingKind::hamiltonian_potential;
  const bool leapfrog = potential || config.coupling == CouplingKind::leapfrog;
  const double products = config.coupling == CouplingKind::affine ? 6 * steps
                          : leapfrog                              ? 2 * (steps + 1)
                                                                  : 2 * steps;
  const double coupling = products * kv_heads * (potential ? d + 1 : d) * hidden;
  // A token sees (T + 1) / 2 keys on average; q k^T and p v.
  const double value_width = config.scoring == Scoring::diff ? 2 * d : d;
  const double scores = q_heads * (d + value_width) * (static_cast<double>(t) + 1) / 2;
  double coupled_layers = 0;
  for (std::int64_t i = 0; i < config.n_layer; ++i) coupled_layers += config.is_coupled(i) ? 1 : 0;
  const auto layers = static_cast<double>(config.n_layer);
  return {layers * (projections + scores) + coupled_layers * coupling, layers * mlp, c * vocab};
}

}  // namespace

double flops_per_token(const ModelConfig& config, std::int64_t t) {
  const Multiplies forward = multiplies_per_token(config, t);
  // Backward is two products for each of forward's.
  return 3 * 2 * (forward.attention + forward.mlp + forward.head);
}

double recomputed_flops_per_token(const ModelConfig& config, std::int64_t t) {
  const Multiplies forward = multiplies_per_token(config, t);
  switch (config.recompute) {
    case RecomputeMode::none:
      return 0;
    case RecomputeMode::mlp:
      return 2 * forward.mlp;
    case RecomputeMode::attn:
      return 2 * forward.attention;
    case RecomputeMode::block:
      return 2 * (forward.attention + forward.mlp);
  }
  return 0;
}

std::int64_t parameters_of(const ModelConfig& config) {
  Transformer model(config, DType::f32, kMeta);
  return count_parameters(model);
}

}  // namespace duet
