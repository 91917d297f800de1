// The backward graph. One Node per differentiable call; edges point from a node to the nodes that
// made its inputs.
//
//   Tensor w = Tensor::full({2}, 3.0, DType::f64);
//   set_requires_grad(w);
//   Tensor loss = sum(mul(w, w));
//   backward(loss);                   // grad(w) is [6, 6]
//
// Second order: grad(y, {x}, {.create_graph = true}) gives dy/dx as tensors with a graph of their
// own, which the next backward() walks through.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/memory_scope.h"
#include "runtime/tensor.h"

namespace duet {

class Node;

// What backward should produce, one entry per input of the op.
class GradRequest {
 public:
  GradRequest() = default;
  explicit GradRequest(std::shared_ptr<Node> at_work) : node_(std::move(at_work)) {}
  void add(bool needed, Tensor accumulator) {
    entries_.push_back({needed, std::move(accumulator)});
  }
  std::size_t size() const { return entries_.size(); }
  // False: no gradient flows to this input; return an undefined Tensor for it and skip the work.
  bool needed(std::size_t input) const { return entries_[input].needed; }
  // A gradient of this input that already exists (the leaf's, or the sum over other consumers),
  // else undefined. An op that can add (beta = 1) adds its own to it and returns it: then no
  // temporary gradient exists. Any strides; never memory that the incoming gradients lie in.
  const Tensor& accumulator(std::size_t input) const { return entries_[input].accumulator; }
  // For differentiable_backward: a saved output of the op itself, with its edge back to the op.
  Tensor own_output(const Tensor& saved, int output = 0) const;

 private:
  struct Entry {
    bool needed;
    Tensor accumulator;
  };
  std::vector<Entry> entries_;
  std::shared_ptr<Node> node_;  // the one whose gradients are asked for
};

class Node {
 public:
  explicit Node(const char* name);
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // d(loss)/d(outputs) -> d(loss)/d(inputs). An undefined Tensor means "no gradient", on both
  // sides.
  virtual std::vector<Tensor> backward(const std::vector<Tensor>& grad_outputs,
                                       const GradRequest& request) = 0;
  // The same, composed of differentiable ops while a graph is recorded; what was saved stays.
  // Throws Error(autograd), naming the op, where it is not offered.
  virtual std::vector<Tensor> differentiable_backward(const std::vector<Tensor>& grad_outputs,
                                                      const GradRequest& request);
  virtual bool offers_second_order() const { return false; }
  // For the node behind a leaf: that it is one, and the gradient it holds so far.
  virtual bool is_leaf() const { return false; }
  virtual Tensor accumulator() const { return {}; }

  using Hook = std::function<Tensor(const Tensor& grad)>;
  struct Edge {
    std::shared_ptr<Node> node;  // null: the input needs no gradient
    int output = 0;
    Shape shape;  // of the input, which its gradient must have
    DType dtype = DType::f32;
  };

  const char* name;
  const std::uint64_t sequence;  // creation order: a node is always younger than its inputs
  const ScopeId scope;           // memory scope of the forward; backward re-enters it
  int outputs = 1;
  std::vector<Edge> edges;                  // one per input of the op
  std::vector<std::pair<int, Hook>> hooks;  // (output, hook), run on that output's gradient
};

struct GradMeta {
  std::shared_ptr<Node> grad_fn;  // the op that made the tensor; null for leaves
  int output = 0;                 // which output of grad_fn it is
  Tensor grad;                    // filled on leaves by backward()
  std::shared_ptr<Node> leaf;     // accumulates into `grad`; null for non-leaves
};

inline bool requires_grad(const Tensor& t) { return t.grad_meta() != nullptr; }
// Makes `t` a leaf that collects a gradient; one that is a leaf already stays as it is. The
// gradient's memory is of `kind` and belongs to the scope of the tensor. Throws Error(autograd) if
// an op made the tensor.
Tensor& set_requires_grad(Tensor& t, MemoryKind kind = MemoryKind::gradients);
// The gradient of a leaf; undefined before the first backward(). Throws Error(autograd) for others.
const Tensor& grad(const Tensor& t);
void set_grad(const Tensor& leaf, Tensor value);  // an undefined value drops the gradient
// Runs `hook` on the gradient of `t` once it is complete, before it flows on; a defined result
// replaces the gradient.
void register_hook(const Tensor& t, Node::Hook hook);

Node::Edge edge_to(const Tensor& t);
void attach(Tensor& t, std::shared_ptr<Node> grad_fn, int output);

bool grad_enabled();
// Inside, ops record no graph.
class NoGradGuard {
 public:
  NoGradGuard() : NoGradGuard(false) {}
  ~NoGradGuard();
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 protected:
  explicit NoGradGuard(bool enabled);

 private:
  bool previous_;
};
// Inside, ops record a graph again (recompute uses it).
struct EnableGradGuard : NoGradGuard {
  EnableGradGuard() : NoGradGuard(true) {}
};

struct GradOptions {
  // Record a graph of the gradients themselves, so that they can be differentiated again, and keep
  // what the nodes saved. Throws Error(autograd) before anything is written if an op on the way
  // does not offer its second derivatives.
  bool create_graph = false;
  Tensor grad_output = {};  // weight of each element of the output; undefined: it has one element
};

// Accumulates d(output)/d(leaf), weighted by grad_output, into every leaf. Without a grad_output
// the output must have one element. Frees what each node saved right after its use: a second
// backward through the same graph throws Error(autograd), unless the first had create_graph.
// With create_graph, grad(leaf) carries a graph, which lives until set_grad() drops or replaces it
// or the leaf dies.
void backward(const Tensor& output);
void backward(const Tensor& output, const Tensor& grad_output);
void backward(const Tensor& output, const GradOptions& options);

// d(output)/d(input) for each input, a leaf or a tensor that an op made; an undefined Tensor where
// the output does not depend on it. Runs the nodes between the two alone, and their hooks; touches
// no leaf's gradient.
std::vector<Tensor> grad(const Tensor& output, const std::vector<Tensor>& inputs,
                         const GradOptions& options = {});

// The name of an op behind `output` that has no second derivatives; null if all offer them.
const char* op_without_second_order(const Tensor& output);

}  // namespace duet
