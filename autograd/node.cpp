#include "autograd/node.h"

#include <atomic>
#include <map>
#include <utility>

#include "runtime/memory_ops.h"

namespace duet {
namespace {

std::atomic<std::uint64_t> next_sequence{0};
thread_local bool grad_mode = true;

// True when nobody else can see the tensor's bytes and it has no others: then it may be written or
// adopted.
bool is_exclusive(const Tensor& t) {
  return t.storage().use_count() == 1 && t.is_contiguous() && t.storage()->bytes() == t.nbytes();
}

bool is_same_buffer(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage() && a.offset() == b.offset();
}

// a + b; into the bytes of one of them where nobody else sees those.
Tensor sum_of(Tensor a, Tensor b) {
  if (!is_exclusive(a)) std::swap(a, b);
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
      leaf->grad.storage()->mark(MemoryKind::gradients);
    } else {
      accumulate(leaf->grad, g.storage() == leaf->grad.storage() ? clone(g) : g);
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

// Nodes wait here for their end, so that a chain of a million nodes is torn down by a loop and not
// by a million nested destructors.
void release(std::vector<Node::Edge> edges) {
  thread_local std::vector<std::shared_ptr<Node>> doomed;
  thread_local bool draining = false;
  for (Node::Edge& e : edges) {
    if (e.node) doomed.push_back(std::move(e.node));
  }
  if (draining) return;
  draining = true;
  while (!doomed.empty()) {
    // Out of the vector first: its destructor may push more.
    const std::shared_ptr<Node> node = std::move(doomed.back());
    doomed.pop_back();
  }
  draining = false;
}

struct Pending {
  std::shared_ptr<Node> node;
  std::vector<Tensor> grads;  // one per output, summed over its consumers
};

// One backward(): gradients that arrived, per node, until the node's turn.
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
    slot = slot.defined() ? sum_of(std::move(slot), std::move(g)) : std::move(g);
  }

  // Youngest node first: every consumer of a node is younger, so its gradient is complete.
  void run() {
    while (!pending_.empty()) {
      Pending p = std::move(pending_.begin()->second);
      pending_.erase(pending_.begin());
      const MemoryScope scope(p.node->scope);
      run_hooks(p);
      const std::vector<Node::Edge>& edges = p.node->edges;
      GradRequest request = offer(edges, p.grads);
      std::vector<Tensor> grads = p.node->backward(p.grads, request);
      check_fit(*p.node, grads);
      for (std::size_t i = 0; i < grads.size(); ++i) {
        const Tensor& buffer = request.accumulator(i);
        const bool added =
            buffer.defined() && grads[i].defined() && is_same_buffer(buffer, grads[i]);
        if (!edges[i].node || added) grads[i] = Tensor();
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
      Tensor buffer = e.node ? e.node->accumulator() : Tensor();
      for (const Tensor& g : at_work) {
        // The caller passed a leaf's own gradient to backward().
        if (buffer.defined() && g.defined() && g.storage() == buffer.storage()) buffer = Tensor();
      }
      if (const Tensor* slot = waiting(e)) buffer = *slot;
      request.add(e.node != nullptr, std::move(buffer));
    }
    return request;
  }

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
  if (requires_grad(t)) return t;
  check(is_floating(t.dtype()), ErrorKind::dtype, "set_requires_grad: got ", t.dtype(),
        ", expected a floating dtype");
  auto meta = std::make_shared<GradMeta>();
  meta->leaf = std::make_shared<AccumulateGrad>(meta);
  t.set_grad_meta(std::move(meta));
  return t;
}

const Tensor& grad(const Tensor& t) {
  check(requires_grad(t), ErrorKind::autograd, "grad: this tensor does not require grad");
  check(t.grad_meta()->leaf != nullptr, ErrorKind::autograd, "grad: an op (",
        t.grad_meta()->grad_fn->name,
        ") made this tensor, only leaves keep their gradient; use register_hook to see it");
  return t.grad_meta()->grad;
}

void set_grad(const Tensor& leaf, Tensor value) {
  check(requires_grad(leaf) && leaf.grad_meta()->leaf, ErrorKind::autograd,
        "set_grad: this tensor is no leaf that requires grad");
  check(!value.defined() || value.shape() == leaf.shape(), ErrorKind::shape,
        "set_grad: shapes differ: got ", value.shape(), ", expected ", leaf.shape());
  check(!value.defined() || (value.dtype() == leaf.dtype() && value.device() == leaf.device()),
        ErrorKind::dtype, "set_grad: dtype or device differs from the leaf's, which is ",
        leaf.dtype(), " on ", leaf.device(), "; convert the gradient");
  leaf.grad_meta()->grad = std::move(value);
}

Node::Edge edge_to(const Tensor& t) {
  if (!requires_grad(t)) return {};
  const GradMeta& meta = *t.grad_meta();
  return {meta.grad_fn ? meta.grad_fn : meta.leaf, meta.output, t.shape(), t.dtype()};
}

void register_hook(const Tensor& t, Node::Hook hook) {
  const Node::Edge edge = edge_to(t);
  check(edge.node != nullptr, ErrorKind::autograd,
        "register_hook: this tensor does not require grad");
  edge.node->hooks.emplace_back(edge.output, std::move(hook));
}

void attach(Tensor& t, std::shared_ptr<Node> grad_fn, int output) {
  if (!t.defined() || !is_floating(t.dtype())) return;  // no gradient reaches it
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
  check(grad_output.dtype() == output.dtype() && grad_output.device() == output.device(),
        ErrorKind::dtype, "backward: grad_output is ", grad_output.dtype(), " on ",
        grad_output.device(), ", expected ", output.dtype(), " on ", output.device());
  const NoGradGuard no_grad;
  Walk walk;
  walk.deliver(edge_to(output), grad_output.detach());
  walk.run();
}

}  // namespace duet
