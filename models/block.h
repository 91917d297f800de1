// A block of the transformer: x + attn(norm(x)), then x + mlp(norm(x)).
#pragma once

#include <array>

#include "models/attention.h"
#include "models/capture.h"
#include "models/config.h"
#include "models/mlp.h"
#include "models/norm.h"

namespace duet {

// What one forward is keyed by. Dropout draws depend on these numbers alone.
struct ForwardContext {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint16_t micro = 0;            // micro-batch within the step
  bool training = false;              // dropout acts
  ForwardCapture* capture = nullptr;  // for diagnostics: gets what every layer scores and returns
};

// Dropout where nanoGPT has it: after the embedding, after attention's and the MLP's output
// projection. Dropout of the attention probabilities is not offered: fused attention never holds
// them.
Tensor model_dropout(const Tensor& x, double p, std::int64_t layer, RandomUse use,
                     const ForwardContext& context);

struct TransformerBlock {
  TransformerBlock() = default;
  TransformerBlock(const ModelConfig& config, std::int64_t index, const TensorOptions& options,
                   const CouplingNetWeights& shared_net);
  // The residual stream [B, T, C] before the block -> behind it. Requires: the block outlives the
  // graph, at the same address, where it recomputes.
  Residual operator()(Residual in, const Tensor& rotation, const ForwardContext& context) const;
  // Decoding: the T tokens of the stream come after `position` known ones.
  Residual decode(Residual in, const Tensor& rotation, KvCache::Layer& cache,
                  std::int64_t position) const;
  void visit(auto&& f) {
    f("attn_norm", attn_norm);
    f("attn", attn);
    f("mlp_norm", mlp_norm);
    f("mlp", mlp);
  }

  std::int64_t layer = 0;
  double dropout = 0;
  RecomputeMode recompute_mode = RecomputeMode::none;
  Norm attn_norm;
  Attention attn;
  Norm mlp_norm;
  Mlp mlp;

 private:
  // A branch: its norm, then attention or the MLP. Returns the stream it began with, and what it
  // adds to that.
  Residual attn_branch(Residual in, const Tensor& rotation, const ForwardContext& context) const;
  Residual mlp_branch(Residual in, const ForwardContext& context) const;
  Residual both(Residual in, const Tensor& rotation, const ForwardContext& context) const;
};

}  // namespace duet
