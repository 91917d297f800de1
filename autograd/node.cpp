#include "autograd/node.h"

#include <atomic>
#include <utility>

#include "autograd/gradient_sum.h"
#include "runtime/memory_ops.h"

namespace duet {
namespace {

std::atomic<std::uint64_t> next_sequence{0};
thread_local bool grad_mode = true;

class AccumulateGrad final : public Node {
 public:
  AccumulateGrad(std::weak_ptr<GradMeta> leaf, MemoryKind kind, ScopeId owner)
      : Node("accumulate_grad"), leaf_(std::move(leaf)), kind_(kind), owner_(owner) {}

  std::vector<Tensor> backward(const std::vector<Tensor>& grad_outputs,
                               const GradRequest& /*request*/) override {
    const std::shared_ptr<GradMeta> leaf = leaf_.lock();
    if (!leaf) return {};
    const Tensor& g = grad_outputs[0];
    // A gradient with a graph may be what that graph saved: add to a copy.
    if (requires_grad(leaf->grad)) leaf->grad = clone(leaf->grad);
    if (!leaf->grad.defined()) {
      leaf->grad = is_exclusive(g) ? g.detach() : clone(g);
      leaf->grad.storage()->mark(kind_, owner_);
    } else {
      accumulate(leaf->grad, g.storage() == leaf->grad.storage() ? clone(g) : g);
    }
    return {};
  }

  std::vector<Tensor> differentiable_backward(const std::vector<Tensor>& grad_outputs,
                                              const GradRequest& /*request*/) override {
    const std::shared_ptr<GradMeta> leaf = leaf_.lock();
    if (!leaf) return {};
    const Tensor& g = grad_outputs[0];
    leaf->grad = leaf->grad.defined() ? differentiable_sum({leaf->grad, g})
                 : is_exclusive(g)    ? g
                                      : differentiable_sum({g});
    leaf->grad.storage()->mark(kind_, owner_);
    return {};
  }
  bool offers_second_order() const override { return true; }

  bool is_leaf() const override { return true; }
  // A hook wants to see the gradient that arrives, so it may not vanish into the buffer.
  Tensor accumulator() const override {
    const std::shared_ptr<GradMeta> leaf = leaf_.lock();
    return leaf && hooks.empty() && !requires_grad(leaf->grad) ? leaf->grad : Tensor();
  }

 private:
  std::weak_ptr<GradMeta> leaf_;  // weak: the leaf owns this node
  MemoryKind kind_;               // of the gradient's block, and its scope
  ScopeId owner_;
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

}  // namespace

Node::Node(const char* n) : name(n), sequence(next_sequence++), scope(current_scope()) {}
Node::~Node() { release(std::move(edges)); }

std::vector<Tensor> Node::differentiable_backward(const std::vector<Tensor>& /*grad_outputs*/,
                                                  const GradRequest& /*request*/) {
  throw_no_second_order(name);
}

bool grad_enabled() { return grad_mode; }
NoGradGuard::NoGradGuard(bool enabled) : previous_(std::exchange(grad_mode, enabled)) {}
NoGradGuard::~NoGradGuard() { grad_mode = previous_; }

Tensor& set_requires_grad(Tensor& t, MemoryKind kind) {
  check(!requires_grad(t) || t.grad_meta()->leaf, ErrorKind::autograd,
        "set_requires_grad: an op made this tensor, only leaves can be marked; detach() it first");
  if (requires_grad(t)) return t;
  check(is_floating(t.dtype()), ErrorKind::dtype, "set_requires_grad: got ", t.dtype(),
        ", expected a floating dtype");
  auto meta = std::make_shared<GradMeta>();
  meta->leaf = std::make_shared<AccumulateGrad>(meta, kind, t.storage()->owner());
  t.set_grad_meta(std::move(meta));
  return t;
}

const Tensor& grad(const Tensor& t) {
  check(requires_grad(t), ErrorKind::autograd, "grad: this tensor does not require grad");
  const Node* const made_by = t.grad_meta()->grad_fn.get();  // null for a leaf
  check(made_by == nullptr, ErrorKind::autograd, "grad: an op (",
        made_by == nullptr ? "" : made_by->name,
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
  check(!value.defined() || value.storage() != leaf.storage(), ErrorKind::autograd,
        "set_grad: the gradient shares its bytes with the leaf, which backward() would overwrite; "
        "clone it first");
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

Tensor GradRequest::own_output(const Tensor& saved, int output) const {
  check(node_ != nullptr, ErrorKind::internal,
        "own_output: no node is at work; call it in differentiable_backward");
  Tensor t = saved;
  attach(t, node_, output);
  return t;
}

}  // namespace duet
