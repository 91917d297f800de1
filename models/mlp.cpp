#include "models/mlp.h"

namespace duet {

Mlp::Mlp(const ModelConfig& config, const TensorOptions& options) : activation(config.activation) {
  const std::int64_t c = config.n_embd;
  const std::int64_t f = config.ff_width();
  if (activation == Activation::swiglu) {
    gate_up = make_parameter("gate_up", {2 * f, c}, options,
                             {{"gate_proj.weight", f}, {"up_proj.weight", f}});
    if (config.bias) {
      gate_up_bias = make_parameter("gate_up_bias", {2 * f}, options,
                                    {{"gate_proj.bias", f}, {"up_proj.bias", f}});
    }
  } else {
    const MemoryScope scope("up_proj");
    up_proj = Linear(c, f, config.bias, options);
  }
  const MemoryScope scope("down_proj");
  down_proj = Linear(f, c, config.bias, options);
}

Tensor Mlp::operator()(const Tensor& x) const {
  Tensor h;  // [B, T, F]
  if (activation == Activation::swiglu) {
    h = swiglu(linear(x, gate_up, gate_up_bias));
  } else if (activation == Activation::gelu_tanh) {
    h = linear_gelu_tanh(x, up_proj.weight, up_proj.bias);
  } else {
    h = gelu(up_proj(x));
  }
  const MemoryScope scope("down_proj");
  return down_proj(h);
}

}  // namespace duet
