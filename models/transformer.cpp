#include "models/transformer.h"

#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/memory_ops.h"
#include "runtime/stop.h"

namespace duet {
namespace {

constexpr double kRopeTheta = 10'000;
constexpr double kInitStd = 0.02;
constexpr double kLambdaInitStd = 0.1;

// FNV-1a.
std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return hash;
}

// The weights of a tensor depend on nothing but the seed and its name.
RandomKey init_key(std::uint64_t seed, std::string_view name) {
  const std::uint64_t hash = hash_name(name);
  return {seed, static_cast<std::uint32_t>(hash >> 32), static_cast<std::uint32_t>(hash), kUseInit,
          0};
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, DType dtype, Device device)
    : config_(config), dtype_(dtype), device_(device) {
  validate(config);
  const TensorOptions options{dtype, device};
  const MemoryKindScope kind(MemoryKind::parameters);
  const bool gpt2 = config.family == Family::gpt2;
  {
    const MemoryScope scope("embedding");
    embedding_ = Embedding(config.vocab_size, config.n_embd, options);
  }
  if (gpt2) {
    const MemoryScope scope("positions");
    positions_ = Embedding(config.block_size, config.n_embd, options);
  } else {
    const MemoryScope scope("rotation");
    rotation_ = rope_table(config.block_size, config.head_dim(), kRopeTheta, dtype, device);
  }
  if (config.coupling != CouplingKind::none && config.coupling_sharing == CouplingSharing::model) {
    const MemoryScope scope("coupling");
    shared_net_ = CouplingNetWeights(config, config.kv_heads(), config.head_dim(), options);
  }
  {
    const MemoryScope outer("blocks");
    blocks_.reserve(static_cast<std::size_t>(config.n_layer));
    for (std::int64_t i = 0; i < config.n_layer; ++i) {
      const MemoryScope scope(std::to_string(i));
      blocks_.emplace_back(config, i, options, shared_net_);
    }
  }
  const MemoryScope scope("final_norm");
  final_norm_ = Norm(config, options);
}

void Transformer::initialize(std::uint64_t seed) {
  const double residual_std = kInitStd / std::sqrt(2.0 * static_cast<double>(config_.n_layer));
  const bool affine = config_.coupling == CouplingKind::affine;
  for (NamedTensor& t : named_tensors(*this)) {
    check_stop();
    const std::string_view name = t.name;
    if (name.ends_with("norm.weight")) {
      fill(t.value, 1);
    } else if (name.ends_with(".bias") || (affine && name.ends_with("coupling.w2"))) {
      fill(t.value, 0);  // affine is then the identity
    } else if (name.ends_with("coupling.dt")) {
      fill(t.value, coupling_dt_parameter(config_.coupling_dt, config_.coupling_dt_mode));
    } else if (name.find(".lambda_") != std::string_view::npos && t.value.ndim() == 1) {
      fill_normal(t.value, init_key(seed, name), 0, kLambdaInitStd);
    } else {
      const bool residual = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
      fill_normal(t.value, init_key(seed, name), 0, residual ? residual_std : kInitStd);
    }
  }
}

void Transformer::check_tokens(const char* what, const Tensor& ids, std::int64_t position) const {
  check(ids.defined() && ids.ndim() == 2, ErrorKind::shape, "transformer: ", what,
        " have the wrong number of dimensions: got ", ids.shape(), ", expected [B, T]");
  check(position > 0 || ids.size(1) <= config_.block_size, ErrorKind::shape, "transformer: ", what,
        " are longer than the context: got ", ids.size(1), " tokens, expected at most block_size ",
        config_.block_size, "; cut the sequence, or train a model with a larger block_size");
}

Tensor Transformer::embed(const Tensor& ids, std::int64_t position) const {
  Tensor x;
  {
    const MemoryScope scope("embedding");
    x = embedding(embedding_.weight, ids);
  }
  if (!positions_.weight.defined()) return x;
  const MemoryScope scope("positions");
  return add(x, slice(positions_.weight, 0, position, position + ids.size(1)));
}

Tensor Transformer::hidden(const Tensor& ids, const ForwardContext& context) const {
  Residual x{embed(ids, 0), {}};
  {
    const MemoryScope scope("embedding");
    x.x = model_dropout(x.x, config_.dropout, 0, kUseDropoutEmbedding, context);
  }
  {
    const MemoryScope scope("blocks");
    for (const TransformerBlock& block : blocks_) {
      x = block(std::move(x), rotation_, context);
      if (context.capture != nullptr) context.capture->residual.push_back(x.sum());
    }
  }
  const MemoryScope scope("final_norm");
  return final_norm_(x)[1];
}

Tensor Transformer::head_loss(const Tensor& x, const Tensor& targets,
                              const LinearCrossEntropyOptions& options) const {
  LinearCrossEntropyOptions head_options = options;
  if (head_options.valid_vocab == 0) head_options.valid_vocab = config_.valid_vocab;
  const MemoryScope scope("head");
  return linear_cross_entropy(x, embedding_.weight, targets, head_options);
}

Tensor Transformer::loss(const Tensor& ids, const Tensor& targets,
                         const LinearCrossEntropyOptions& options,
                         const ForwardContext& context) const {
  check_tokens("ids", ids, 0);
  check(targets.defined() && targets.shape() == ids.shape(), ErrorKind::shape,
        "transformer: ids and targets differ: got ", ids.shape(), " and ", targets.shape(),
        ", expected one target per id");
  return head_loss(hidden(ids, context), targets, options);
}

// [B, T], [M] -> [M, C]; a gather is an embedding with the hidden states as its table.
Tensor Transformer::hidden_at(const Tensor& ids, const Tensor& rows,
                              const ForwardContext& context) const {
  const Tensor x = hidden(ids, context);
  return duet::embedding(reshape(x, {x.size(0) * x.size(1), x.size(2)}), rows);
}

Tensor Transformer::loss_at(const Tensor& ids, const Tensor& rows, const Tensor& targets,
                            const LinearCrossEntropyOptions& options,
                            const ForwardContext& context) const {
  check_tokens("ids", ids, 0);
  check(rows.defined() && targets.defined() && rows.ndim() == 1 && targets.shape() == rows.shape(),
        ErrorKind::shape, "transformer: rows and targets differ: got ", rows.shape(), " and ",
        targets.shape(), ", expected one target per row, in one dimension");
  return head_loss(hidden_at(ids, rows, context), targets, options);
}

Tensor Transformer::logits_at(const Tensor& ids, const Tensor& rows) const {
  check_tokens("ids", ids, 0);
  return head(hidden_at(ids, rows, {}), Positions::all);
}

Tensor Transformer::head(const Tensor& x, Positions positions) const {
  const MemoryScope scope("head");
  const std::int64_t t = x.size(1);
  const Tensor tokens =
      positions == Positions::last && t > 0 ? contiguous(slice(x, 1, t - 1, t)) : x;
  if (config_.valid_vocab == 0) return linear(tokens, embedding_.weight);
  return linear(tokens, slice(embedding_.weight, 0, 0, config_.valid_vocab));
}

Tensor Transformer::logits(const Tensor& ids, Positions positions) const {
  check_tokens("ids", ids, 0);
  return head(hidden(ids, {}), positions);
}

Tensor Transformer::logits(const Tensor& ids, KvCache& cache, Positions positions) const {
  check_tokens("ids", ids, cache.length);
  check(cache.layers.size() == blocks_.size() && cache.batch == ids.size(0), ErrorKind::shape,
        "transformer: the cache does not fit: got ", cache.layers.size(), " layers for ",
        cache.batch, " sequences, expected ", blocks_.size(), " layers for ", ids.size(0),
        "; use make_cache()");
  check(cache.length + ids.size(1) <= cache.capacity, ErrorKind::usage,
        "generate: the context is full: got ", cache.length, " tokens and ", ids.size(1),
        " more, expected at most ", cache.capacity,
        "; ask for fewer new tokens, or slide the context");
  const NoGradGuard no_grad;
  Residual x{embed(ids, cache.length), {}};
  {
    const MemoryScope scope("blocks");
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      x = blocks_[i].decode(std::move(x), rotation_, cache.layers[i], cache.length);
    }
  }
  Tensor out = head(final_norm_(x)[1], positions);
  cache.length += ids.size(1);  // last: an error above leaves the cache as it was
  return out;
}

KvCache Transformer::make_cache(std::int64_t batch) const {
  check(batch >= 1, ErrorKind::shape, "make_cache: got ", batch, " sequences, expected 1 or more");
  const MemoryScope scope("kv_cache");
  KvCache cache{{}, batch, config_.block_size, 0};
  const Shape shape = {batch, cache.capacity, config_.kv_heads(), config_.head_dim()};
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    cache.layers.push_back(
        {Tensor::empty(shape, dtype_, device_), Tensor::empty(shape, dtype_, device_)});
  }
  return cache;
}

ForwardCapture Transformer::capture(const Tensor& ids) const {
  check_tokens("ids", ids, 0);
  const NoGradGuard no_grad;
  ForwardCapture captured;
  ForwardContext context;
  context.capture = &captured;
  hidden(ids, context);
  return captured;
}

std::vector<std::vector<double>> Transformer::coupling_step_sizes() const {
  std::vector<std::vector<double>> out;
  if (!config_.has_step_size()) return out;
  const NoGradGuard no_grad;
  for (const TransformerBlock& block : blocks_) {
    std::vector<double>& row = out.emplace_back();
    if (!block.attn.coupling.defined()) continue;
    const Tensor dt = to_device(block.attn.coupling.step_size(), kCpu);
    for (std::int64_t g = 0; g < dt.numel(); ++g) row.push_back(dt.slice_view(0, g, g + 1).item());
  }
  return out;
}

}  // namespace duet
