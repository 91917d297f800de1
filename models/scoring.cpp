#include "models/scoring.h"

#include <cmath>

namespace duet {
namespace {

// The two halves of the heads of x [B, T, H, D].
std::array<Tensor, 2> halves(const Tensor& x) {
  const std::int64_t half = x.size(2) / 2;
  return split(x, 2, std::array<std::int64_t, 2>{half, half});
}

}  // namespace

double diff_lambda_init(std::int64_t layer) {
  return 0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(layer));
}

Scorer::Scorer(const ModelConfig& config, std::int64_t layer, const TensorOptions& options)
    : kind(config.scoring) {
  const std::int64_t d = config.head_dim();
  if (kind == Scoring::diff) {
    lambda_q1 = make_parameter("lambda_q1", {d}, options);
    lambda_k1 = make_parameter("lambda_k1", {d}, options);
    lambda_q2 = make_parameter("lambda_q2", {d}, options);
    lambda_k2 = make_parameter("lambda_k2", {d}, options);
    lambda_init = diff_lambda_init(layer);
    {
      const MemoryScope scope("lambda_start");
      lambda_start = Tensor::full({}, lambda_init, options.dtype, options.device);
    }
    const MemoryScope scope("norm");
    norm_weight = make_parameter("weight", {2 * d}, options);
  } else if (kind == Scoring::diff_v2) {
    const MemoryScope scope("lambda_proj");
    lambda_proj = Linear(config.n_embd, config.n_head, /*with_bias=*/false, options);
  }
}

Tensor Scorer::lambda(const Tensor& x) const {
  if (kind == Scoring::diff_v2) return sigmoid(lambda_proj(x));
  const Tensor first = exp(sum(mul(lambda_q1, lambda_k1)));
  const Tensor second = exp(sum(mul(lambda_q2, lambda_k2)));
  return add(sub(first, second), lambda_start);
}

Tensor Scorer::diff(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v,
                    AttentionCapture* capture) const {
  const Shape pairs = {v.size(0), v.size(1), v.size(2) / 2, 2 * v.size(3)};
  const Tensor wide = reshape(v, pairs);  // a view: the two heads lie side by side
  const auto [q1, q2] = halves(q);
  const auto [k1, k2] = halves(k);
  const Tensor l = lambda(x);
  if (capture != nullptr) capture->lambda = l;
  const Tensor y = diff_combine(attention(q1, k1, wide), attention(q2, k2, wide), l);
  // The factor goes into the weight: one small product instead of one over all tokens.
  const Tensor weight = scale(norm_weight, 1 - lambda_init);
  return reshape(rms_norm(y, weight), {q.size(0), q.size(1), q.size(2) * q.size(3)});
}

Tensor Scorer::diff_v2(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v,
                       AttentionCapture* capture) const {
  const std::int64_t b = q.size(0), t = q.size(1), h = q.size(2) / 2, d = q.size(3);
  const Tensor l = lambda(x);
  if (capture != nullptr) capture->lambda = l;
  const Tensor pairs = reshape(attention(q, k, v), {b, t, h, 2 * d});
  const auto [a1, a2] = split(pairs, 3, std::array<std::int64_t, 2>{d, d});
  return reshape(diff_combine(a1, a2, l), {b, t, h * d});
}

Tensor Scorer::operator()(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v,
                          AttentionCapture* capture) const {
  if (capture != nullptr) {
    capture->q = q;
    capture->k = k;
  }
  switch (kind) {
    case Scoring::softmax:
      return reshape(attention(q, k, v), {q.size(0), q.size(1), q.size(2) * q.size(3)});
    case Scoring::diff:
      return diff(x, q, k, v, capture);
    case Scoring::diff_v2:
      return diff_v2(x, q, k, v, capture);
  }
  throw Error(ErrorKind::internal, "scoring: not a kind");
}

}  // namespace duet
