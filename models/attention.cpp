#include "models/attention.h"

#include <tuple>

#include "runtime/memory_ops.h"

namespace duet {
namespace {

// Puts x [B, T, H, D] behind the first `position` tokens of the store and returns all of them.
Tensor append(const Tensor& store, std::int64_t position, const Tensor& x) {
  const std::int64_t end = position + x.size(1);
  Tensor place = store.slice_view(1, position, end);
  copy(place, x);
  return store.slice_view(1, 0, end);
}

}  // namespace

Attention::Attention(const ModelConfig& config, std::int64_t layer, const TensorOptions& options,
                     const CouplingNetWeights& shared_net)
    : n_head(config.query_heads()),
      n_kv_head(config.kv_heads()),
      head_dim(config.head_dim()),
      coupling_rope(config.coupling_rope) {
  const std::int64_t q_rows = n_head * head_dim;
  const std::int64_t kv_rows = n_kv_head * head_dim;
  const std::int64_t rows = q_rows + 2 * kv_rows;
  qkv = make_parameter(
      "qkv", {rows, config.n_embd}, options,
      {{"q_proj.weight", q_rows}, {"k_proj.weight", kv_rows}, {"v_proj.weight", kv_rows}});
  if (config.bias) {
    qkv_bias = make_parameter(
        "qkv_bias", {rows}, options,
        {{"q_proj.bias", q_rows}, {"k_proj.bias", kv_rows}, {"v_proj.bias", kv_rows}});
  }
  {
    const MemoryScope scope("o_proj");
    o_proj = Linear(config.n_head * head_dim, config.n_embd, config.bias, options);
  }
  if (config.is_coupled(layer)) {
    const MemoryScope scope("coupling");
    coupling = Coupling(config, n_kv_head, head_dim, options, shared_net);
  }
  const MemoryScope scope("diff");
  scorer = Scorer(config, layer, options);
}

Tensor Attention::operator()(const Tensor& x, const Tensor& rotation, KvCache::Layer* cache,
                             std::int64_t position, AttentionCapture* capture) const {
  const std::int64_t b = x.size(0);
  const std::int64_t t = x.size(1);
  Tensor q, k, v;  // [B, T, Hq | Hkv, D]
  {
    // Views on one product: nothing is copied to tell q, k and v apart.
    const Tensor heads =
        reshape(linear(x, qkv, qkv_bias), {b, t, n_head + 2 * n_kv_head, head_dim});
    std::tie(q, k, v) = std::tuple_cat(split(heads, 2, {n_head, n_kv_head, n_kv_head}));
  }
  const bool couples_first = coupling.defined() && coupling_rope == CouplingRope::before;
  if (rotation.defined() && !couples_first) {
    q = rope(q, rotation, position);
    k = rope(k, rotation, position);
  }
  if (coupling.defined()) {
    // Before RoPE, the coupling rotates what it returns, and saves RoPE its own pass.
    const MemoryScope scope("coupling");
    std::tie(q, k) = std::tuple_cat(coupling(q, k, couples_first ? rotation : Tensor(), position));
  }
  if (cache != nullptr) {
    k = append(cache->k, position, k);
    v = append(cache->v, position, v);
  }
  const Tensor out = scorer(x, q, k, v, capture);
  const MemoryScope scope("o_proj");
  return o_proj(out);
}

}  // namespace duet
