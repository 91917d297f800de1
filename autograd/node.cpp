#include "autograd/node.h"

#include <atomic>
#include <map>
#include <utility>

#include "runtime/memory_ops.h"

namespace duet {
namespace {

std::atomic<std::uint64_t> next_sequence{0};
thread_local bool grad_mode = true;

// True when nobody else can see the tensor's bytes: then it may be written or adopted.
bool is_exclusive(const Tensor& t) {
  return t.storage().use_count() == 1 && t.is_contiguous() && t.offset() == 0;
}

bool is_same_buffer(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage() && a.offset() == b.offset();
}

// a + b; reuses the bytes of `a` where nobody else sees them.
Tensor sum_of(Tensor a, const Tensor& b) {
  if (!is_exclusive(a)) a = clone(a);
  accumulate(a, b);
  return a;
}

class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(std::weak_ptr<GradMeta> leaf)
      : Node("accumulate_grad"), leaf_(std::move(leaf)) {}

  std::vector<Tensor> backward(const std::vector<Tensor>& grad_outputs,
                               const GradRequest& /*request*/) override {
    const std::shared_ptr<GradMeta> leaf = leaf_.lock();
    if (!leaf) return {};
    const Tensor& g = grad_outputs[0];
    if (!leaf->grad.defined()) {
      leaf->grad = is_exclusive(g) ? g.detach() : clone(g);
    } else if (!is_same_buffer(leaf->grad, g)) {
      accumulate(leaf->grad, g);
    }
    return {};
  }

  bool is_leaf() const override { return true; }
  // A hook wants to see the gradient that arrives, so it may not vanish into the buffer.
  Tensor accumulator() const override {
    const std::shared_ptr<GradMeta> leaf = leaf_.lock();
    return leaf && hooks.empty() ? leaf->grad : Tensor();
  }

 private:
  std::weak_ptr<GradMeta> leaf_;  // weak: the leaf owns this node
};

// Nodes whose last owner was another node wait here, so that a chain of a million nodes is torn
// down by a loop and not by a million nested destructors.
void release(std::vector<Node::Edge> edges) {
  thread_local std::vector<std::shared_ptr<Node>> doomed;
  thread_local bool draining = false;
  for (Node::Edge& e : edges) {
    if (e.node && e.node.use_count() == 1) doomed.push_back(std::move(e.node));
  }
  edges.clear();
  if (draining) return;
  draining = true;
  while (!doomed.empty()) {
    const std::shared_ptr<Node> node = std::move(doomed.back());
    doomed.pop_back();
  }
  draining = false;
}

struct Pending {
  std::shared_ptr<Node> node;
  std::vector<Tensor> grads;  // one per output, summed over its consumers
};

class Walk {
 public:
  void deliver(const Node::Edge& edge, Tensor g) {
    if (edge.node->is_leaf() && edge.node->hooks.empty()) {
      // At once, so that the next consumer of a tied weight finds the buffer to add into.
      std::vector<Tensor> only;
      only.push_back(std::move(g));
      edge.node->backward(only, {});
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
    } else {
      slot = sum_of(std::move(slot), g);
    }
  }

  // Youngest node first: every consumer of a node is younger, so its gradient is complete.
  void run() {
    while (!pending_.empty()) {
      Pending p = std::move(pending_.begin()->second);
      pending_.erase(pending_.begin());
      const MemoryScope scope(p.node->scope);
      for (const auto& [output, hook] : p.node->hooks) {
        Tensor& g = p.grads[static_cast<std::size_t>(output)];
        if (!g.defined()) continue;
        if (Tensor replaced = hook(g); replaced.defined()) g = std::move(replaced);
      }
      GradRequest request;
      for (const Node::Edge& e : p.node->edges) {
        request.add(e.node != nullptr, e.node ? e.node->accumulator() : Tensor());
      }
      std::vector<Tensor> grad_inputs = p.node->backward(p.grads, request);
      p.grads.clear();
      for (std::size_t i = 0; i < grad_inputs.size(); ++i) {
        if (p.node->edges[i].node && grad_inputs[i].defined()) {
          deliver(p.node->edges[i], std::move(grad_inputs[i]));
        }
      }
    }
  }

 private:
  std::map<std::uint64_t, Pending, std::greater<>> pending_;
};

}  // namespace

Node::Node(const char* n) : name(n), sequence(next_sequence++), scope(current_scope()) {}
Node::~Node() { release(std::move(edges)); }

bool grad_enabled() { return grad_mode; }
NoGradGuard::NoGradGuard(bool enabled) : previous_(std::exchange(grad_mode, enabled)) {}
NoGradGuard::~NoGradGuard() { grad_mode = previous_; }

Tensor& set_requires_grad(Tensor& t) {
  check(!requires_grad(t) || t.grad_meta()->leaf, ErrorKind::autograd,
        "set_requires_grad: an op made this tensor, only leaves can be marked; detach() it first");
  check(is_floating(t.dtype()), ErrorKind::dtype, "set_requires_grad: got ", t.dtype(),
        ", expected a floating dtype");
  auto meta = std::make_shared<GradMeta>();
  meta->leaf = std::make_shared<AccumulateGrad>(meta);
  t.set_grad_meta(std::move(meta));
  return t;
}

const Tensor& grad(const Tensor& t) {
  check(requires_grad(t), ErrorKind::autograd, "grad: this tensor does not require grad");
  return t.grad_meta()->grad;
}

void set_grad(const Tensor& leaf, Tensor value) {
  check(requires_grad(leaf) && leaf.grad_meta()->leaf, ErrorKind::autograd,
        "set_grad: this tensor is no leaf that requires grad");
  check(!value.defined() || value.shape() == leaf.shape(), ErrorKind::shape,
        "set_grad: shapes differ: got ", value.shape(), ", expected ", leaf.shape());
  leaf.grad_meta()->grad = std::move(value);
}

Node::Edge edge_to(const Tensor& t) {
  if (!requires_grad(t)) return {};
  const GradMeta& meta = *t.grad_meta();
  return meta.grad_fn ? Node::Edge{meta.grad_fn, meta.output} : Node::Edge{meta.leaf, 0};
}

void register_hook(const Tensor& t, Node::Hook hook) {
  const Node::Edge edge = edge_to(t);
  check(edge.node != nullptr, ErrorKind::autograd,
        "register_hook: this tensor does not require grad");
  edge.node->hooks.emplace_back(edge.output, std::move(hook));
}

void attach(Tensor& t, std::shared_ptr<Node> grad_fn, int output) {
  auto meta = std::make_shared<GradMeta>();
  meta->grad_fn = std::move(grad_fn);
  meta->output = output;
  t.set_grad_meta(std::move(meta));
}

void backward(const Tensor& output) {
  check(output.numel() == 1, ErrorKind::autograd,
        "backward: without a grad_output the output must have one element, got shape ",
        output.shape());
  backward(output, Tensor::full(output.shape(), 1.0, output.dtype(), output.device()));
}

void backward(const Tensor& output, const Tensor& grad_output) {
  check(requires_grad(output), ErrorKind::autograd,
        "backward: the output does not require grad; was it computed under a NoGradGuard?");
  check(grad_output.shape() == output.shape(), ErrorKind::shape, "backward: grad_output is ",
        grad_output.shape(), ", expected ", output.shape());
  const NoGradGuard no_grad;
  Walk walk;
  walk.deliver(edge_to(output), grad_output.detach());
  walk.run();
}

}  // namespace duet
