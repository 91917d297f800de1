// The MLP of a block: SwiGLU (gate and up are one matrix product) or GELU.
#pragma once

#include "models/config.h"
#include "models/linear.h"

namespace duet {

struct Mlp {
  Mlp() = default;
  Mlp(const ModelConfig& config, const TensorOptions& options);
  // [B, T, C] -> [B, T, C]
  Tensor operator()(const Tensor& x) const;
  void visit(auto&& f) {
    f("gate_up", gate_up);
    f("gate_up_bias", gate_up_bias);
    f("up_proj", up_proj);
    f("down_proj", down_proj);
  }

  Activation activation = Activation::swiglu;
  Parameter gate_up;       // [2F, C], rows gate_proj then up_proj; swiglu only
  Parameter gate_up_bias;  // [2F]
  Linear up_proj;          // C -> F; gelu only
  Linear down_proj;        // F -> C
};

}  // namespace duet
