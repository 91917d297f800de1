// The norm before each branch: RMSNorm (llama) or LayerNorm (gpt2).
#pragma once

#include <array>

#include "models/config.h"
#include "models/linear.h"

namespace duet {

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
  // {sum, norm of the sum}, sum = x + delta: in one pass, with the bits of the two.
  std::array<Tensor, 2> of_sum(const Tensor& x, const Tensor& delta) const {
    return family == Family::llama ? add_rms_norm(x, delta, weight)
                                   : add_layer_norm(x, delta, weight, bias);
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
