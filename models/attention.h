// Attention = coupling x scoring: one product gives q, k, v; the coupling evolves (q, k); RoPE
// rotates; fused causal attention scores.
#pragma once

#include "models/capture.h"
#include "models/config.h"
#include "models/coupling.h"
#include "models/kv_cache.h"
#include "models/linear.h"
#include "models/scoring.h"

namespace duet {

struct Attention {
  Attention() = default;
  Attention(const ModelConfig& config, std::int64_t layer, const TensorOptions& options,
            const CouplingNetWeights& shared_net);
  // x [B, T, C] -> [B, T, C]. `rotation` is the RoPE table, undefined for learned positions. With a
  // cache layer, the T tokens come after `position` known ones and are added to it. `capture`, if
  // any, gets what is scored.
  Tensor operator()(const Tensor& x, const Tensor& rotation, KvCache::Layer* cache = nullptr,
                    std::int64_t position = 0, AttentionCapture* capture = nullptr) const;
  void visit(auto&& f) {
    f("qkv", qkv);
    f("qkv_bias", qkv_bias);
    f("o_proj", o_proj);
    f("coupling", coupling);
    f("diff", scorer);
  }

  std::int64_t n_head = 0;  // of queries
  std::int64_t n_kv_head = 0;
  std::int64_t head_dim = 0;
  Parameter qkv;       // [(Hq + 2 Hkv) D, C], rows q_proj, k_proj, v_proj
  Parameter qkv_bias;  // [(Hq + 2 Hkv) D]
  Linear o_proj;       // H D -> C
  Coupling coupling;
  CouplingRope coupling_rope = CouplingRope::before;
  Scorer scorer;
};

}  // namespace duet
