// The walk: gradients flow from an output to the leaves, or to the tensors that were asked about.
#include <map>
#include <utility>

#include "autograd/gradient_sum.h"
#include "autograd/node.h"
#include "autograd/op_watch.h"
#include "runtime/memory_ops.h"
#include "runtime/stop.h"

namespace duet {
namespace {

bool is_same_buffer(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage() && a.offset() == b.offset();
}

// The nodes behind a root by age, oldest first: a node's inputs stand before it. Those older than
// `oldest` are left out.
std::map<std::uint64_t, Node*> nodes_behind(Node* root, std::uint64_t oldest) {
  std::map<std::uint64_t, Node*> nodes;
  std::vector<Node*> open{root};
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    if (node->sequence < oldest || !nodes.emplace(node->sequence, node).second) continue;
    for (const Node::Edge& e : node->edges) {
      if (e.node) open.push_back(e.node.get());
    }
  }
  return nodes;
}

// What grad() asks about, and the nodes on the way there.
struct Targets {
  std::vector<Node::Edge> edges;
  std::vector<Tensor> found;
  std::map<std::uint64_t, Node*> on_the_way;  // the targets themselves included

  Targets(Node* root, const std::vector<Tensor>& inputs) : found(inputs.size()) {
    std::uint64_t oldest = root->sequence;
    for (const Tensor& t : inputs) {
      edges.push_back(edge_to(t));
      oldest = std::min(oldest, edges.back().node->sequence);
    }
    for (const auto& [sequence, node] : nodes_behind(root, oldest)) {
      if (is_target(*node) || leads_on(*node)) on_the_way.emplace(sequence, node);
    }
  }
  bool is_target(const Node& node) const {
    for (const Node::Edge& e : edges) {
      if (e.node.get() == &node) return true;
    }
    return false;
  }
  bool leads_to(const Node& node) const { return on_the_way.count(node.sequence) > 0; }
  bool leads_on(const Node& node) const {
    for (const Node::Edge& e : node.edges) {
      if (e.node && leads_to(*e.node)) return true;
    }
    return false;
  }
};

struct Pending {
  std::shared_ptr<Node> node;
  std::vector<Tensor> grads;  // one per output, summed over its consumers
};

// One backward(): gradients that arrived, per node, until the node's turn.
class Walk {
 public:
  // Without targets every leaf collects its gradient.
  Walk(bool create_graph, Targets* targets) : create_graph_(create_graph), targets_(targets) {}

  void deliver(const Node::Edge& edge, Tensor g) {
    if (!targets_ && edge.node->is_leaf() && edge.node->hooks.empty()) {
      // At once, so that the next consumer of a tied weight finds the buffer to add into.
      std::vector<Tensor> only;
      only.push_back(std::move(g));
      gradients(*edge.node, only, {});
      return;
    }
    Pending& p = pending_[edge.node->sequence];
    if (!p.node) {
      p.node = edge.node;
      p.grads.resize(static_cast<std::size_t>(edge.node->outputs));
    }
    Tensor& slot = p.grads[static_cast<std::size_t>(edge.output)];
    if (!slot.defined()) {
      slot = std::move(g);
    } else if (create_graph_) {
      slot = differentiable_sum({slot, g});
    } else {
      slot = sum_of(std::move(slot), std::move(g));
    }
  }

  // Youngest node first: every consumer of a node is younger, so its gradient is complete.
  void run() {
    while (!pending_.empty()) {
      check_stop();
      Pending p = std::move(pending_.begin()->second);
      pending_.erase(pending_.begin());
      const MemoryScope scope(p.node->scope);
      const OpScope at_work(p.node->name);
      run_hooks(p);
      if (targets_) {
        note_found(p);
        if (!targets_->leads_on(*p.node)) continue;
      }
      const std::vector<Node::Edge>& edges = p.node->edges;
      GradRequest request = create_graph_ ? ask(p.node) : offer(edges, p.grads);
      std::vector<Tensor> grads = gradients(*p.node, p.grads, request);
      check_fit(*p.node, grads);
      for (std::size_t i = 0; i < grads.size(); ++i) {
        const Tensor& buffer = request.accumulator(i);
        const bool added =
            buffer.defined() && grads[i].defined() && is_same_buffer(buffer, grads[i]);
        if (!is_needed(edges[i]) || added) grads[i] = Tensor();
      }
      // Let go of everything that is done with: what is delivered may then be written or adopted.
      p.grads.clear();
      request = {};
      for (std::size_t i = 0; i < grads.size(); ++i) {
        if (grads[i].defined()) deliver(edges[i], std::move(grads[i]));
      }
    }
  }

 private:
  std::vector<Tensor> gradients(Node& node, const std::vector<Tensor>& grad_outputs,
                                const GradRequest& request) const {
    std::vector<Tensor> grads = create_graph_ ? node.differentiable_backward(grad_outputs, request)
                                              : node.backward(grad_outputs, request);
    if (ops_are_watched() && op_is_wanted()) [[unlikely]] {
      const std::vector<Tensor> collected{node.accumulator()};
      show_op(
          {node.name, /*backward=*/true, &node, grad_outputs, node.is_leaf() ? collected : grads});
    }
    return grads;
  }

  bool is_needed(const Node::Edge& e) const {
    return e.node && (!targets_ || targets_->leads_to(*e.node));
  }

  void note_found(const Pending& p) {
    for (std::size_t i = 0; i < targets_->edges.size(); ++i) {
      const Node::Edge& e = targets_->edges[i];
      if (e.node == p.node) targets_->found[i] = p.grads[static_cast<std::size_t>(e.output)];
    }
  }

  static void run_hooks(Pending& p) {
    for (std::size_t i = 0; i < p.node->hooks.size(); ++i) {
      const auto [output, hook] = p.node->hooks[i];  // a copy: a hook may register another
      Tensor& g = p.grads[static_cast<std::size_t>(output)];
      if (!g.defined()) continue;
      Tensor replaced = hook(g);
      if (!replaced.defined()) continue;
      check(replaced.shape() == g.shape() && replaced.dtype() == g.dtype(), ErrorKind::shape,
            p.node->name, ": a hook replaced the gradient by one that does not fit: got ",
            replaced.dtype(), " ", replaced.shape(), ", expected ", g.dtype(), " ", g.shape());
      g = std::move(replaced);
    }
  }

  static void check_fit(const Node& node, const std::vector<Tensor>& grads) {
    check(grads.size() <= node.edges.size(), ErrorKind::internal, node.name, ": backward returned ",
          grads.size(), " gradients for ", node.edges.size(), " inputs");
    for (std::size_t i = 0; i < grads.size(); ++i) {
      const Node::Edge& e = node.edges[i];
      if (!e.node || !grads[i].defined()) continue;
      check(grads[i].shape() == e.shape && grads[i].dtype() == e.dtype, ErrorKind::internal,
            node.name, ": backward returned ", grads[i].dtype(), " ", grads[i].shape(),
            " for input ", i, ", expected ", e.dtype, " ", e.shape);
    }
  }

  // The sum that waits for the node behind `e`, if any.
  Tensor* waiting(const Node::Edge& e) {
    if (!e.node) return nullptr;
    const auto it = pending_.find(e.node->sequence);
    if (it == pending_.end()) return nullptr;
    Tensor& slot = it->second.grads[static_cast<std::size_t>(e.output)];
    return slot.defined() ? &slot : nullptr;
  }

  // What a node may add into. Whether a buffer is offered depends on the graph alone, not on who
  // else holds its bytes: results keep their bits, and recompute() gives the same ones.
  GradRequest offer(const std::vector<Node::Edge>& edges, const std::vector<Tensor>& at_work) {
    for (const Node::Edge& e : edges) {
      if (Tensor* slot = waiting(e); slot && !is_exclusive(*slot)) *slot = clone(*slot);
    }
    GradRequest request;
    for (const Node::Edge& e : edges) {
      Tensor buffer = e.node && !targets_ ? e.node->accumulator() : Tensor();
      for (const Tensor& g : at_work) {
        // The caller passed a leaf's own gradient to backward().
        if (buffer.defined() && g.defined() && g.storage() == buffer.storage()) buffer = Tensor();
      }
      if (const Tensor* slot = waiting(e)) buffer = *slot;
      request.add(is_needed(e), std::move(buffer));
    }
    return request;
  }

  // Under create_graph nothing is written in place, so nothing is offered to add into.
  GradRequest ask(const std::shared_ptr<Node>& node) const {
    GradRequest request(node);
    for (const Node::Edge& e : node->edges) request.add(is_needed(e), {});
    return request;
  }

  bool create_graph_;
  Targets* targets_;
  std::map<std::uint64_t, Pending, std::greater<>> pending_;
};

// The gradient that the walk starts from.
Tensor first_gradient(const char* what, const Tensor& output, const GradOptions& options) {
  check(output.defined(), ErrorKind::autograd, what, ": the output is undefined");
  const Tensor& g = options.grad_output;
  check(g.defined() || output.numel() == 1, ErrorKind::autograd, what,
        ": without a grad_output the output must have one element, got shape ", output.shape());
  check(requires_grad(output), ErrorKind::autograd, what,
        ": the output does not require grad; was it computed under a NoGradGuard?");
  if (!g.defined()) return Tensor::full(output.shape(), 1.0, output.dtype(), output.device());
  check(g.shape() == output.shape(), ErrorKind::shape, what, ": grad_output is ", g.shape(),
        ", expected ", output.shape());
  check(g.dtype() == output.dtype() && g.device() == output.device(), ErrorKind::dtype, what,
        ": grad_output is ", g.dtype(), " on ", g.device(), ", expected ", output.dtype(), " on ",
        output.device());
  return options.create_graph ? g : g.detach();
}

// The same modes as the walk needs: a graph of the gradients, or none.
struct GradModeGuard : NoGradGuard {
  explicit GradModeGuard(bool enabled) : NoGradGuard(enabled) {}
};

}  // namespace

void backward(const Tensor& output) { backward(output, GradOptions{}); }

void backward(const Tensor& output, const Tensor& grad_output) {
  check(grad_output.defined(), ErrorKind::shape, "backward: the grad_output is undefined");
  backward(output, GradOptions{false, grad_output});
}

void backward(const Tensor& output, const GradOptions& options) {
  Tensor start = first_gradient("backward", output, options);
  if (options.create_graph) {
    if (const char* op = op_without_second_order(output)) throw_no_second_order(op);
  }
  const GradModeGuard mode(options.create_graph);
  Walk walk(options.create_graph, nullptr);
  walk.deliver(edge_to(output), std::move(start));
  walk.run();
}

std::vector<Tensor> grad(const Tensor& output, const std::vector<Tensor>& inputs,
                         const GradOptions& options) {
  Tensor start = first_gradient("grad", output, options);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check(inputs[i].defined() && requires_grad(inputs[i]), ErrorKind::autograd, "grad: input ", i,
          " does not require grad; call set_requires_grad() on it before the output is computed");
  }
  const Node::Edge root = edge_to(output);
  Targets targets(root.node.get(), inputs);
  if (!targets.leads_to(*root.node)) return std::move(targets.found);
  if (options.create_graph) {
    for (const auto& [sequence, node] : targets.on_the_way) {
      if (targets.leads_on(*node) && !node->offers_second_order())
        throw_no_second_order(node->name);
    }
  }
  const GradModeGuard mode(options.create_graph);
  Walk walk(options.create_graph, &targets);
  walk.deliver(root, std::move(start));
  walk.run();
  if (!options.create_graph) {
    // Bytes of their own, so that a caller may write them.
    for (Tensor& g : targets.found) {
      if (g.defined()) g = is_exclusive(g) ? g.detach() : clone(g);
    }
  }
  return std::move(targets.found);
}

const char* op_without_second_order(const Tensor& output) {
  if (!requires_grad(output)) return nullptr;
  for (const auto& [sequence, node] : nodes_behind(edge_to(output).node.get(), 0)) {
    if (!node->offers_second_order()) return node->name;
  }
  return nullptr;
}

}  // namespace duet
