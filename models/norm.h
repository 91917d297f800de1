// The norm before each branch: RMSNorm (llama) or LayerNorm (gpt2).
#pragma once

#include <array>

#include "models/config.h"
#include "models/linear.h"

namespace duet {

// The residual stream behind a branch: x + delta, not yet added, so that the norm which comes next
// adds them in its own pass.
struct Residual {
  Tensor x;      // [*, C]
  Tensor delta;  // [*, C]; undefined: nothing is to be added

  Tensor sum() const { return delta.defined() ? add(x, delta) : x; }
};

struct Norm {
  Norm() = default;
  Norm(const ModelConfig& config, const TensorOptions& options)
      : family(config.family), weight(make_parameter("weight", {config.n_embd}, options)) {
    if (family == Family::gpt2 && config.bias) {
      bias = make_parameter("bias", {config.n_embd}, options);
    }
  }
  // [*, C] -> [*, C]
  Tensor operator()(const Tensor& x) const {
    return family == Family::llama ? rms_norm(x, weight) : layer_norm(x, weight, bias);
  }
  // {sum, norm of the sum}: in one pass, with the bits of the two.
  std::array<Tensor, 2> operator()(const Residual& r) const {
    if (!r.delta.defined()) return {r.x, (*this)(r.x)};
    return family == Family::llama ? add_rms_norm(r.x, r.delta, weight)
                                   : add_layer_norm(r.x, r.delta, weight, bias);
  }
  void visit(auto&& f) {
    f("weight", weight);
    f("bias", bias);
  }

  Family family = Family::llama;
  Parameter weight;  // [C]
  Parameter bias;    // [C]; undefined without biases
};

}  // namespace duet
