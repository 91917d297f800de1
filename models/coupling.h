// The coupling of a layer: evolves the pair (q, k) of every token and head before scoring.
#pragma once

#include <array>
#include <vector>

#include "models/config.h"
#include "models/linear.h"

namespace duet {

// The learned f(x) = w2 silu(w1 x): one net per key/value head, or one for all heads of a layer.
// For affine, two such nets with outputs (s, t): index 0 moves k, index 1 moves q. For
// hamiltonian_potential, its one output is the potential and f the force.
struct CouplingNetWeights {
  CouplingNetWeights() = default;
  // For `heads` key heads of `width` numbers each, as attention has them.
  CouplingNetWeights(const ModelConfig& config, std::int64_t heads, std::int64_t width,
                     const TensorOptions& options);
  void visit(auto&& f) {
    f("w1", w1);
    f("w2", w2);
  }

  Parameter w1;  // [G, h, D], affine [G, 2, h, D]; undefined: no coupling
  Parameter w2;  // [G, D, h], affine [G, 2, 2 D, h], hamiltonian_potential [G, 1, h]
};

struct Coupling {
  Coupling() = default;  // none
  // `shared`: the net of a model whose layers share it (coupling_sharing = model). This module then
  // aliases the same parameters, and their owner alone lists them in its visit().
  Coupling(const ModelConfig& config, std::int64_t heads, std::int64_t width,
           const TensorOptions& options, const CouplingNetWeights& shared);
  bool defined() const { return net.w1.defined(); }
  // [B, T, Hq, D], [B, T, Hkv, D] -> the same shapes, rotated as by rope(.., rotation, position)
  // where a rotation is given.
  std::array<Tensor, 2> operator()(const Tensor& q, const Tensor& k, const Tensor& rotation = {},
                                   std::int64_t position = 0) const;
  // The factor of the steps: dt or softplus(dt), [Hkv], or the fixed value, [G]. Undefined
  // for affine.
  Tensor step_size() const;
  void visit(auto&& f) {
    if (owns_net) net.visit(f);
    f("dt", dt);
  }

  CouplingKind kind = CouplingKind::none;
  CouplingNetWeights net;
  bool owns_net = false;
  Parameter dt;     // [Hkv], whoever shares f; undefined when fixed, and for affine
  Tensor fixed_dt;  // [G]; no parameter: not trained, not saved
  CouplingDtMode mode = CouplingDtMode::raw;
  int steps = 1;
  bool run_back = false;
};

// The value of the parameter dt whose step size is `step_size`.
double coupling_dt_parameter(double step_size, CouplingDtMode mode);

}  // namespace duet
