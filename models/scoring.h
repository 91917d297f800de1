// Scoring: q, k and v to the mixed values of a layer.
//   softmax  a = softmax(q k^T / sqrt(D)) v
//   diff     heads in pairs, values of both side by side (arXiv 2410.05258):
//            (1 - lambda_init) RMSNorm((A1 - lambda A2) v), A1 and A2 two softmax maps
//   diff_v2  two queries per head on the same keys and values: a1 - sigmoid(x Wl) a2
#pragma once

#include "models/capture.h"
#include "models/config.h"
#include "models/linear.h"

namespace duet {

struct Scorer {
  Scorer() = default;  // softmax
  Scorer(const ModelConfig& config, std::int64_t layer, const TensorOptions& options);
  // x [B, T, C], what the layer projects; q [B, T, Hq, D]; k, v [B, S, Hkv, D] -> [B, T, H D].
  // diff: head p of the first half pairs with head p of the second half, of queries and of keys
  // alike, so a group of queries keeps its keys; values 2p and 2p + 1 are one of width 2D.
  // diff_v2: queries 2h and 2h + 1 pair.
  Tensor operator()(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v,
                    AttentionCapture* capture = nullptr) const;
  // diff: exp(<lq1, lk1>) - exp(<lq2, lk2>) + lambda_init, []; diff_v2: sigmoid(x Wl), [B, T, H]
  Tensor lambda(const Tensor& x) const;
  void visit(auto&& f) {
    f("lambda_q1", lambda_q1);
    f("lambda_k1", lambda_k1);
    f("lambda_q2", lambda_q2);
    f("lambda_k2", lambda_k2);
    f("norm.weight", norm_weight);
    f("lambda_proj", lambda_proj);
  }

  Scoring kind = Scoring::softmax;
  Parameter lambda_q1, lambda_k1, lambda_q2, lambda_k2;  // diff: [D], shared by the heads
  Parameter norm_weight;                                 // diff: [2D], shared by the heads
  Linear lambda_proj;                                    // diff_v2: C -> H, no bias
  double lambda_init = 0;                                // diff
  Tensor lambda_start;                                   // the same, []

 private:
  Tensor diff(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v,
              AttentionCapture* capture) const;
  Tensor diff_v2(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v,
                 AttentionCapture* capture) const;
};

// 0.8 - 0.6 exp(-0.3 layer), layers counted from 0.
double diff_lambda_init(std::int64_t layer);

}  // namespace duet
