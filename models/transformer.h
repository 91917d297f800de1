// The transformer: embedding, blocks, norm, and a head tied to the embedding.
//
//   Transformer model(preset("tiny", Family::llama));
//   model.initialize(1337);
//   Tensor loss = model.loss(ids, targets, {}, {.seed = 1337, .step = 0, .training = true});
//   backward(loss);
//
// Names: embedding.weight, positions.weight (gpt2), blocks.N.attn_norm.weight,
// blocks.N.attn.{q,k,v,o}_proj.weight, blocks.N.attn.coupling.{w1,w2,dt}, blocks.N.mlp_norm.weight,
// blocks.N.mlp.{gate,up,down}_proj.weight, final_norm.weight; coupling.{w1,w2} when layers share.
#pragma once

#include <vector>

#include "models/block.h"
#include "models/config.h"
#include "models/kv_cache.h"
#include "models/linear.h"
#include "models/norm.h"

namespace duet {

enum class Positions : std::uint8_t { all, last };  // which tokens of a sequence get logits

struct Transformer {
  // The weights are uninitialised: call initialize() or load a checkpoint into named_tensors().
  // Throws Error(usage) if the configuration does not fit together.
  explicit Transformer(const ModelConfig& config, DType dtype = DType::f32, Device device = kCpu);
  Transformer(Transformer&&) = default;  // recompute holds the address of a block, not of the model
  Transformer& operator=(Transformer&&) = default;
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  const ModelConfig& config() const { return config_; }
  Device device() const { return device_; }  // of weights, ids and logits

  // N(0, 0.02), divided by sqrt(2 n_layer) for the projections into the residual stream; norms 1,
  // biases 0, step sizes coupling_dt, the last layer of affine's nets 0. A tensor's numbers depend
  // on (seed, its name) alone, so two models start equal in every weight that both have.
  void initialize(std::uint64_t seed);

  // Mean cross-entropy. ids, targets: i32 or i64 [B, T], T <= block_size -> []
  Tensor loss(const Tensor& ids, const Tensor& targets,
              const LinearCrossEntropyOptions& options = {},
              const ForwardContext& context = {}) const;

  // The same at some positions only: rows of the flattened [B * T], i32, each with its target.
  // ids [B, T], rows [M], targets [M] -> []
  Tensor loss_at(const Tensor& ids, const Tensor& rows, const Tensor& targets,
                 const LinearCrossEntropyOptions& options = {},
                 const ForwardContext& context = {}) const;
  Tensor logits_at(const Tensor& ids, const Tensor& rows) const;  // [B, T], [M] -> [M, V]

  // Logits of the ids that exist (valid_vocab of them, or all): [B, T] -> [B, T or 1, V].
  // Differentiable; no dropout.
  Tensor logits(const Tensor& ids, Positions positions = Positions::all) const;
  // The same for T tokens that follow those in the cache, and adds them to it; records no graph.
  // Throws Error(usage) when they do not fit any more.
  Tensor logits(const Tensor& ids, KvCache& cache, Positions positions = Positions::all) const;
  // An empty cache for `batch` sequences of block_size tokens.
  KvCache make_cache(std::int64_t batch) const;

  // What every layer scores and returns for these ids, [B, T]. No dropout; records no graph.
  ForwardCapture capture(const Tensor& ids) const;

  // Per layer and head; empty without coupling and for affine, an empty row for a layer without.
  std::vector<std::vector<double>> coupling_step_sizes() const;

  void visit(auto&& f) {
    f("embedding", embedding_);
    f("positions", positions_);
    f("coupling", shared_net_);
    f("blocks", blocks_);
    f("final_norm", final_norm_);
  }

 private:
  void check_tokens(const char* what, const Tensor& ids, std::int64_t position) const;
  // Embedding of tokens whose first has this position: [B, T] -> [B, T, C]
  Tensor embed(const Tensor& ids, std::int64_t position) const;
  Tensor hidden(const Tensor& ids, const ForwardContext& context) const;  // [B, T] -> [B, T, C]
  Tensor hidden_at(const Tensor& ids, const Tensor& rows, const ForwardContext& context) const;
  // [B, T, C] or [M, C] with targets [B, T] or [M] -> []
  Tensor head_loss(const Tensor& x, const Tensor& targets,
                   const LinearCrossEntropyOptions& options) const;
  Tensor head(const Tensor& x, Positions positions) const;  // [B, T, C] -> logits

  ModelConfig config_;
  DType dtype_;
  Device device_;
  Embedding embedding_;            // [V, C]
  Embedding positions_;            // [block_size, C]; gpt2 only
  CouplingNetWeights shared_net_;  // coupling_sharing = model only
  std::vector<TransformerBlock> blocks_;
  Norm final_norm_;
  Tensor rotation_;  // RoPE table [block_size, 2, D/2]; llama only
};

}  // namespace duet
