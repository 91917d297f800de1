#include "models/coupling.h"

#include <cmath>

namespace duet {

CouplingNetWeights::CouplingNetWeights(const ModelConfig& config, std::int64_t heads,
                                       std::int64_t d, const TensorOptions& options) {
  const std::int64_t h = config.coupling_hidden;
  // Shared by the model means: each head its own net, the same in every layer.
  const std::int64_t nets = config.coupling_sharing == CouplingSharing::layer ? 1 : heads;
  const bool affine = config.coupling == CouplingKind::affine;
  w1 = make_parameter("w1", affine ? Shape{nets, 2, h, d} : Shape{nets, h, d}, options);
  const std::int64_t outputs = config.coupling == CouplingKind::hamiltonian_potential ? 1 : d;
  w2 = make_parameter("w2", affine ? Shape{nets, 2, 2 * d, h} : Shape{nets, outputs, h}, options);
}

Coupling::Coupling(const ModelConfig& config, std::int64_t heads, std::int64_t width,
                   const TensorOptions& tensor_options, const CouplingNetWeights& shared)
    : kind(config.coupling),
      net(shared),
      owns_net(!shared.w1.defined()),
      mode(config.coupling_dt_mode),
      steps(static_cast<int>(config.coupling_steps)),
      run_back(config.coupling_run_back) {
  if (owns_net) net = CouplingNetWeights(config, heads, width, tensor_options);
  if (!config.has_step_size()) return;
  if (mode == CouplingDtMode::fixed) {
    const MemoryScope scope("dt");
    fixed_dt = Tensor::full({net.w1.size(0)}, config.coupling_dt, tensor_options.dtype,
                            tensor_options.device);
  } else {
    dt = make_parameter("dt", {heads}, tensor_options);
  }
}

Tensor Coupling::step_size() const {
  if (kind == CouplingKind::affine) return {};
  switch (mode) {
    case CouplingDtMode::raw:
      return dt;
    case CouplingDtMode::softplus:
      return softplus(dt);
    case CouplingDtMode::fixed:
      return fixed_dt;
  }
  throw Error(ErrorKind::internal, "coupling: not a dt mode");
}

std::array<Tensor, 2> Coupling::operator()(const Tensor& q, const Tensor& k, const Tensor& rotation,
                                           std::int64_t position) const {
  const CouplingOptions options{steps, run_back, rotation, position};
  const auto run = [&](auto op) { return op(q, k, net.w1, net.w2, step_size(), options); };
  switch (kind) {
    case CouplingKind::none:
      break;
    case CouplingKind::euler:
      return run(coupling_euler);
    case CouplingKind::leapfrog:
      return run(coupling_leapfrog);
    case CouplingKind::symplectic_euler:
      return run(coupling_symplectic_euler);
    case CouplingKind::uncoupled:
      return run(coupling_uncoupled);
    case CouplingKind::uncoupled_k:
      return run(coupling_uncoupled_k);
    case CouplingKind::affine:
      return coupling_affine(q, k, net.w1, net.w2, options);
    case CouplingKind::hamiltonian_potential:
      return run(coupling_hamiltonian_potential);
  }
  throw Error(ErrorKind::internal, "coupling: none, or not a kind");
}

double coupling_dt_parameter(double step_size, CouplingDtMode mode) {
  // softplus(x) = log(1 + e^x), so x = log(e^s - 1) = s + log(1 - e^-s).
  return mode == CouplingDtMode::softplus ? step_size + std::log(-std::expm1(-step_size))
                                          : step_size;
}

}  // namespace duet
