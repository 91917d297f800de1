// How an op joins the graph. An Op is a plain struct: attributes, Saved, forward, backward.
//
//   struct Scale {
//     static constexpr const char* name = "scale";
//     struct Saved {};                                        // SavedTensors; may be empty
//     double factor;                                          // attributes are members
//     Tensor forward(Saved&, const Tensor& x) const;          // Tensor, or std::array<Tensor, N>
//     Tensor backward(const Saved&, const Tensor& dy) const;  // one Tensor per input
//   };
//   Tensor y = apply(Scale{2.0}, x);
//
// Several inputs: backward returns std::array<Tensor, inputs>. Several outputs: `dy` is a
// const std::vector<Tensor>&, with undefined entries where no gradient arrived. A third parameter
// `const GradRequest&` tells which inputs need a gradient, and offers leaf buffers to add into.
// A variable number of inputs: apply_list(op, tensors), where forward takes and backward returns a
// std::vector<Tensor>. An op without a backward member throws, by name, when backward reaches it.
//
// Second order: a member differentiable_backward, of the same forms, which computes the same
// gradients by differentiable ops (ops/ops.h, or apply() of an op of its own) on dy and on
// saved.x.with_edge(name). An op without it throws, by name, under create_graph.
#pragma once

#include <array>
#include <concepts>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/node.h"
#include "autograd/op_watch.h"
#include "autograd/saved_tensor.h"

namespace duet {

template <class Op>
concept OpStruct = requires {
  { Op::name } -> std::convertible_to<const char*>;
  typename Op::Saved;
};

template <OpStruct Op>
inline constexpr bool offers_second_order = requires {
  &Op::differentiable_backward;
};

namespace detail {

inline std::vector<Tensor> to_list(Tensor t) { return {std::move(t)}; }
inline std::vector<Tensor> to_list(std::vector<Tensor> ts) { return ts; }
template <std::size_t N>
std::vector<Tensor> to_list(std::array<Tensor, N> ts) {
  return {std::make_move_iterator(ts.begin()), std::make_move_iterator(ts.end())};
}

inline Tensor& output(Tensor& t, int) { return t; }
template <std::size_t N>
Tensor& output(std::array<Tensor, N>& ts, int i) {
  return ts[static_cast<std::size_t>(i)];
}

template <class Out>
inline constexpr int output_count = 1;
template <std::size_t N>
inline constexpr int output_count<std::array<Tensor, N>> = static_cast<int>(N);

template <OpStruct Op, int kOutputs>
struct OpNode final : Node {
  explicit OpNode(Op o) : Node(Op::name), op(std::move(o)) { outputs = kOutputs; }

  std::vector<Tensor> backward(const std::vector<Tensor>& grad_outputs,
                               const GradRequest& request) override {
    check_unused();
    used = true;
    const auto& dy = form_of(grad_outputs);
    std::vector<Tensor> grads;
    if constexpr (requires { op.backward(saved, dy, request); }) {
      grads = to_list(op.backward(saved, dy, request));
    } else if constexpr (requires { op.backward(saved, dy); }) {
      grads = to_list(op.backward(saved, dy));
    } else {
      throw Error(ErrorKind::autograd,
                  concat(Op::name,
                         ": this op has no gradient; detach() its input, or use an op "
                         "that has one"));
    }
    saved = {};  // free activations as backward walks, not at the end
    return grads;
  }

  std::vector<Tensor> differentiable_backward(const std::vector<Tensor>& grad_outputs,
                                              const GradRequest& request) override {
    check_unused();
    const auto& dy = form_of(grad_outputs);
    if constexpr (requires { op.differentiable_backward(saved, dy, request); }) {
      return to_list(op.differentiable_backward(saved, dy, request));
    } else if constexpr (requires { op.differentiable_backward(saved, dy); }) {
      return to_list(op.differentiable_backward(saved, dy));
    } else {
      static_assert(!duet::offers_second_order<Op>, "differentiable_backward: not a known form");
      return Node::differentiable_backward(grad_outputs, request);
    }
  }
  bool offers_second_order() const override { return duet::offers_second_order<Op>; }

  void check_unused() const {
    check(!used, ErrorKind::autograd, Op::name,
          ": backward ran twice through the same graph; its saved tensors were already freed; run "
          "the forward again");
  }
  static const auto& form_of(const std::vector<Tensor>& grad_outputs) {
    if constexpr (kOutputs == 1) {
      return grad_outputs[0];
    } else {
      return grad_outputs;
    }
  }

  Op op;
  typename Op::Saved saved;
  bool used = false;
};

// `inputs()` lists the inputs; it is called only for a watch.
template <class Out, class Inputs>
void show_forward(const char* op, const Node* node, Inputs&& inputs, const Out& out) {
  if (!ops_are_watched() || !op_is_wanted()) [[likely]] {
    return;
  }
  const std::vector<Tensor> in = inputs();
  const std::vector<Tensor> made = to_list(out);
  show_op({op, /*backward=*/false, node, in, made});
}

template <OpStruct Op, class In, class Inputs>
auto apply_with(Op op, std::vector<Node::Edge>&& edges, bool record, In&& forward,
                Inputs&& inputs) {
  using Out = std::remove_cvref_t<decltype(forward(op, std::declval<typename Op::Saved&>()))>;
  constexpr int outputs = output_count<Out>;
  const OpScope at_work(Op::name);
  if (!record) {
    const NoGradGuard no_grad;
    typename Op::Saved unused;
    Out out = forward(op, unused);
    show_forward(Op::name, nullptr, inputs, out);
    return out;
  }
  auto node = std::make_shared<OpNode<Op, outputs>>(std::move(op));
  node->edges = std::move(edges);
  Out out;
  {
    const NoGradGuard no_grad;
    out = forward(node->op, node->saved);
  }
  show_forward(Op::name, node.get(), inputs, out);
  for (int i = 0; i < outputs; ++i) attach(output(out, i), node, i);
  return out;
}

}  // namespace detail

// Runs op.forward on the inputs and, if a gradient may be asked of one of them, records the call.
template <OpStruct Op, std::same_as<Tensor>... In>
auto apply(Op op, const In&... in) {
  const bool record = grad_enabled() && (requires_grad(in) || ...);
  std::vector<Node::Edge> edges;
  if (record) edges = {edge_to(in)...};
  return detail::apply_with(
      std::move(op), std::move(edges), record,
      [&](auto& o, auto& saved) { return o.forward(saved, in...); },
      [&] { return std::vector<Tensor>{in...}; });
}

template <OpStruct Op>
auto apply_list(Op op, const std::vector<Tensor>& in) {
  bool record = false;
  for (const Tensor& t : in) record = record || (grad_enabled() && requires_grad(t));
  std::vector<Node::Edge> edges;
  if (record) {
    for (const Tensor& t : in) edges.push_back(edge_to(t));
  }
  return detail::apply_with(
      std::move(op), std::move(edges), record,
      [&](auto& o, auto& saved) { return o.forward(saved, in); }, [&] { return in; });
}

}  // namespace duet
