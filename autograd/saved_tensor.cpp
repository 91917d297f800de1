#include "autograd/saved_tensor.h"

#include <utility>

#include "autograd/node.h"

namespace duet {
namespace {

std::size_t live_bytes = 0;  // only the main thread builds and walks graphs

}  // namespace

std::size_t saved_bytes() { return live_bytes; }

SavedTensor::SavedTensor(SavedTensor&& other) noexcept
    : tensor_(std::exchange(other.tensor_, {})),
      leaf_(std::move(other.leaf_)),
      version_(other.version_),
      was_defined_(other.was_defined_),
      own_output_(other.own_output_) {}

SavedTensor& SavedTensor::operator=(SavedTensor&& other) noexcept {
  if (this != &other) {
    reset();
    tensor_ = std::exchange(other.tensor_, {});
    leaf_ = std::move(other.leaf_);
    version_ = other.version_;
    was_defined_ = other.was_defined_;
    own_output_ = other.own_output_;
  }
  return *this;
}

void SavedTensor::assign(Tensor t, bool own_output) {
  reset();
  was_defined_ = t.defined();
  own_output_ = own_output;
  if (!was_defined_) return;
  version_ = t.version();
  t.storage()->mark(MemoryKind::saved);
  live_bytes += t.nbytes();
  const bool is_leaf = requires_grad(t) && t.grad_meta()->leaf;
  if (is_leaf) leaf_ = t.grad_meta();
  tensor_ = is_leaf ? t.detach() : std::move(t);
}

void SavedTensor::reset() noexcept {
  if (tensor_.defined()) live_bytes -= tensor_.nbytes();
  tensor_ = Tensor();
  leaf_.reset();
}

const Tensor& SavedTensor::get(const char* op) const {
  if (!was_defined_) return tensor_;
  check(
      tensor_.defined(), ErrorKind::autograd, op,
      ": backward ran twice through the same graph; its saved tensors were already freed; run the "
      "forward again");
  check(tensor_.version() == version_, ErrorKind::autograd, op, ": a tensor saved for backward, ",
        tensor_.shape(), ", was modified in place (version ", tensor_.version(), ", expected ",
        version_, "); write to a clone instead");
  return tensor_;
}

Tensor SavedTensor::with_edge(const char* op) const {
  Tensor t = get(op);
  check(!own_output_, ErrorKind::internal, op,
        ": with_edge() of a saved output, which knows no edge; use GradRequest::own_output()");
  // A leaf that died meanwhile stays detached: nobody can ask for its gradient.
  if (auto meta = leaf_.lock()) t.set_grad_meta(std::move(meta));
  return t;
}

}  // namespace duet
