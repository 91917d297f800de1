// OpWatch: sees what ops make, as they make it: the outputs of every forward, the gradients of
// every backward. Off, it costs each op one comparison with null.
//
//   struct Counter : OpWatch {
//     bool wants_next() override { return true; }
//     void on_op(const OpEvent&) override { ++ops; }
//     int ops = 0;
//   } counter;
//   const OpWatchScope watching(counter);   // on this thread, until the end of the C++ block
#pragma once

#include <span>

#include "runtime/tensor.h"

namespace duet {

class Node;

// One op's turn, at its end. The current memory scope is the op's layer. In backward the inputs are
// the gradients of the op's outputs, and the outputs those of its inputs; for a leaf, the one
// output is the gradient that it holds now. Any tensor may be undefined, and nothing keeps them
// alive.
struct OpEvent {
  const char* op;
  bool backward;
  const Node* node;  // null where no graph is recorded
  std::span<const Tensor> inputs;
  std::span<const Tensor> outputs;
};

class OpWatch {
 public:
  OpWatch() = default;
  OpWatch(const OpWatch&) = delete;
  OpWatch& operator=(const OpWatch&) = delete;
  virtual ~OpWatch() = default;
  // Asked at every op's end; on_op() follows if the answer is true.
  virtual bool wants_next() = 0;
  // May read the tensors, and must not run ops.
  virtual void on_op(const OpEvent& event) = 0;
};

// Scopes nest: an outer watch sees an event before an inner one does.
class OpWatchScope {
 public:
  explicit OpWatchScope(OpWatch& watch);
  ~OpWatchScope();
  OpWatchScope(const OpWatchScope&) = delete;
  OpWatchScope& operator=(const OpWatchScope&) = delete;

 private:
  friend bool op_is_wanted();
  friend void show_op(const OpEvent& event);
  bool ask();
  void show(const OpEvent& event) const;

  OpWatch& watch_;
  OpWatchScope* outer_;
  bool wanted_ = false;
};

namespace detail {
inline constinit thread_local OpWatchScope* innermost_watch = nullptr;
}

inline bool ops_are_watched() { return detail::innermost_watch != nullptr; }
// For the two places where ops run. Requires ops_are_watched(). Whether a watch wants this event;
// the lists of an event are made only then, and shown to those that do.
bool op_is_wanted();
void show_op(const OpEvent& event);

}  // namespace duet
