#include "models/block.h"

#include <string>
#include <utility>

#include "autograd/recompute.h"
#include "runtime/stop.h"

namespace duet {
namespace {

// {sum, its norm}. What `in` held ends here: only the sum is kept.
std::array<Tensor, 2> normed(const char* scope_name, const Norm& norm, Residual& in) {
  const MemoryScope scope(scope_name);
  return norm(std::exchange(in, {}));
}

// {x, delta of branch({x})}: only x is kept, and the branch runs again in backward. It enters the
// memory scopes of its norm and its body as the first run did.
template <class Branch>
Residual again(const char* name, Residual in, Branch branch) {
  const Tensor x = std::exchange(in, {}).sum();
  const ScopeId here = current_scope();
  return {x, recompute(name,
                       [here, branch](const std::vector<Tensor>& inputs) {
                         const MemoryScope scope(here);
                         return branch({inputs[0], {}}).delta;
                       },
                       {x})};
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

Residual TransformerBlock::attn_branch(Residual in, const Tensor& rotation,
                                       const ForwardContext& context) const {
  check_stop();
  const auto [x, h] = normed("attn_norm", attn_norm, in);
  const MemoryScope scope("attn");
  AttentionCapture* const capture =
      context.capture == nullptr ? nullptr : &context.capture->attention.emplace_back();
  return {x, model_dropout(attn(h, rotation, nullptr, 0, capture), dropout, layer,
                           kUseDropoutAttention, context)};
}

Residual TransformerBlock::mlp_branch(Residual in, const ForwardContext& context) const {
  check_stop();
  const auto [x, h] = normed("mlp_norm", mlp_norm, in);
  const MemoryScope scope("mlp");
  return {x, model_dropout(mlp(h), dropout, layer, kUseDropoutMlp, context)};
}

Residual TransformerBlock::both(Residual in, const Tensor& rotation,
                                const ForwardContext& context) const {
  const auto attend = [this, rotation, context](Residual r) {
    return attn_branch(std::move(r), rotation, context);
  };
  const auto feed_forward = [this, context](Residual r) {
    return mlp_branch(std::move(r), context);
  };
  Residual attended = recompute_mode == RecomputeMode::attn ? again("attn", std::move(in), attend)
                                                            : attend(std::move(in));
  return recompute_mode == RecomputeMode::mlp ? again("mlp", std::move(attended), feed_forward)
                                              : feed_forward(std::move(attended));
}

Residual TransformerBlock::operator()(Residual in, const Tensor& rotation,
                                      const ForwardContext& context) const {
  const std::string name = std::to_string(layer);
  if (recompute_mode != RecomputeMode::block) {
    const MemoryScope scope(name);
    return both(std::move(in), rotation, context);
  }
  const auto all = [this, rotation, context](const std::vector<Tensor>& inputs) {
    return both({inputs[0], {}}, rotation, context).sum();
  };
  return {recompute(name.c_str(), all, {std::exchange(in, {}).sum()}), {}};
}

Residual TransformerBlock::decode(Residual in, const Tensor& rotation, KvCache::Layer& cache,
                                  std::int64_t position) const {
  const MemoryScope scope(std::to_string(layer));
  const auto [x, h] = normed("attn_norm", attn_norm, in);
  return mlp_branch({x, attn(h, rotation, &cache, position)}, {});
}

}  // namespace duet
