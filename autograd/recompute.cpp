#include "autograd/recompute.h"

#include "autograd/op.h"

namespace duet {
namespace {

struct Recompute {
  static constexpr const char* name = "recompute";
  struct Saved {
    std::vector<SavedTensor> inputs;
    std::vector<bool> needs_grad;
  };
  RecomputeFunction f;

  Tensor forward(Saved& saved, const std::vector<Tensor>& in) const {
    for (const Tensor& t : in) {
      saved.inputs.emplace_back().save_input(t);
      saved.needs_grad.push_back(requires_grad(t));
    }
    return f(in);
  }

  std::vector<Tensor> backward(const Saved& saved, const Tensor& dy,
                               const GradRequest& request) const {
    std::vector<Tensor> in;
    for (std::size_t i = 0; i < saved.inputs.size(); ++i) {
      in.push_back(saved.inputs[i].get(name).detach());
      if (!saved.needs_grad[i]) continue;
      // Added up in the order in which the graph without recompute would: the same bits.
      set_requires_grad(in.back(), MemoryKind::temporary);
      set_grad(in.back(), request.accumulator(i));
    }
    {
      const EnableGradGuard enable;
      const Tensor y = f(in);
      if (requires_grad(y)) duet::backward(y, dy);
    }
    std::vector<Tensor> grads;
    for (std::size_t i = 0; i < in.size(); ++i) {
      // Handed over, not shared: the receiver may then adopt the bytes.
      grads.push_back(saved.needs_grad[i] ? std::exchange(in[i].grad_meta()->grad, {}) : Tensor());
    }
    return grads;
  }
};

}  // namespace

Tensor recompute(const char* name, RecomputeFunction f, const std::vector<Tensor>& inputs) {
  const MemoryScope scope(name);
  // Recorded even if no input requires grad: parameters that `f` captures may.
  std::vector<Node::Edge> edges;
  for (const Tensor& t : inputs) edges.push_back(edge_to(t));
  return detail::apply_with(
      Recompute{std::move(f)}, std::move(edges), grad_enabled(),
      [&](auto& op, auto& saved) { return op.forward(saved, inputs); }, [&] { return inputs; });
}

}  // namespace duet
