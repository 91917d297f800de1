#include "models/block.h"

#include <string>

#include "autograd/recompute.h"

namespace duet {
namespace {

// f(x) inside the memory scope `name`; where `again`, only x is kept and f runs again in backward.
template <class F>
Tensor run(const char* name, bool again, const Tensor& x, F f) {
  if (again) {
    return recompute(name, [f](const std::vector<Tensor>& in) { return f(in[0]); }, {x});
  }
  const MemoryScope scope(name);
  return f(x);
}

}  // namespace

Tensor model_dropout(const Tensor& x, double p, std::int64_t layer, RandomUse use,
                     const ForwardContext& context) {
  if (!context.training || p == 0) return x;
  return dropout(
      x, p, {context.seed, context.step, static_cast<std::uint32_t>(layer), use, context.micro});
}

TransformerBlock::TransformerBlock(const ModelConfig& config, std::int64_t index,
                                   const TensorOptions& options,
                                   const CouplingNetWeights& shared_net)
    : layer(index), dropout(config.dropout), recompute_mode(config.recompute) {
  const auto make = [&](const char* name, auto& member, auto&&... arguments) {
    const MemoryScope scope(name);
    member = std::remove_reference_t<decltype(member)>(config, arguments...);
  };
  make("attn_norm", attn_norm, options);
  make("attn", attn, index, options, shared_net);
  make("mlp_norm", mlp_norm, options);
  make("mlp", mlp, options);
}

Tensor TransformerBlock::attn_branch(const Tensor& x, const Tensor& rotation,
                                     const ForwardContext& context) const {
  Tensor h;
  {
    const MemoryScope scope("attn_norm");
    h = attn_norm(x);
  }
  const MemoryScope scope("attn");
  AttentionCapture* const capture =
      context.capture == nullptr ? nullptr : &context.capture->attention.emplace_back();
  return model_dropout(attn(h, rotation, nullptr, 0, capture), dropout, layer, kUseDropoutAttention,
                       context);
}

Tensor TransformerBlock::mlp_branch(const Tensor& x, const ForwardContext& context) const {
  Tensor h;
  {
    const MemoryScope scope("mlp_norm");
    h = mlp_norm(x);
  }
  return mlp_body(h, context);
}

Tensor TransformerBlock::mlp_body(const Tensor& h, const ForwardContext& context) const {
  const MemoryScope scope("mlp");
  return model_dropout(mlp(h), dropout, layer, kUseDropoutMlp, context);
}

Tensor TransformerBlock::both(const Tensor& x, const Tensor& rotation,
                              const ForwardContext& context) const {
  // A branch that runs again enters the scopes of its norm and its body as the first run did.
  const ScopeId here = current_scope();
  const Tensor attended = run("attn", recompute_mode == RecomputeMode::attn, x,
                              [this, here, rotation, context](const Tensor& in) {
                                const MemoryScope scope(here);
                                return attn_branch(in, rotation, context);
                              });
  if (recompute_mode == RecomputeMode::mlp) {
    // Apart, so that the norm runs again with the MLP and what it returns need not be kept.
    const Tensor y = add(x, attended);
    return add(y, run("mlp", true, y, [this, here, context](const Tensor& in) {
                 const MemoryScope scope(here);
                 return mlp_branch(in, context);
               }));
  }
  const auto [y, h] = mlp_input(x, attended);
  return add(y, mlp_body(h, context));
}

std::array<Tensor, 2> TransformerBlock::mlp_input(const Tensor& x, const Tensor& attended) const {
  const MemoryScope scope("mlp_norm");
  return mlp_norm.of_sum(x, attended);
}

Tensor TransformerBlock::operator()(const Tensor& x, const Tensor& rotation,
                                    const ForwardContext& context) const {
  return run(std::to_string(layer).c_str(), recompute_mode == RecomputeMode::block, x,
             [this, rotation, context](const Tensor& in) { return both(in, rotation, context); });
}

Tensor TransformerBlock::decode(const Tensor& x, const Tensor& rotation, KvCache::Layer& cache,
                                std::int64_t position) const {
  const MemoryScope scope(std::to_string(layer));
  const auto [y, h] = mlp_input(x, attn(attn_norm(x), rotation, &cache, position));
  return add(y, mlp_body(h, {}));
}

}  // namespace duet
