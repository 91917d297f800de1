// SavedTensor: what an op keeps for its backward. Versioned, counted, and aware of whether it holds
// an input of the op or the op's own output (which must not own its own node). Nor does it own the
// gradient of a leaf: a gradient may carry a graph that saved that very leaf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/tensor.h"

namespace duet {

class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(const SavedTensor&) = delete;
  SavedTensor& operator=(const SavedTensor&) = delete;
  SavedTensor(SavedTensor&& other) noexcept;
  SavedTensor& operator=(SavedTensor&& other) noexcept;
  ~SavedTensor() { reset(); }

  // Keeps an input, with its edge into the graph; undefined tensors may be saved.
  void save_input(const Tensor& t) { assign(t, /*own_output=*/false); }
  // Keeps an output of the op itself, or a statistic that the forward computed.
  void save_output(const Tensor& t) { assign(t.detach(), /*own_output=*/true); }

  // The tensor. Throws Error(autograd) if backward already freed it, or if it was written in place
  // since it was saved.
  const Tensor& get(const char* op) const;
  // The same, of an input, to be differentiated again: with its edge into the graph.
  Tensor with_edge(const char* op) const;
  bool was_defined() const { return was_defined_; }
  void reset() noexcept;

 private:
  void assign(Tensor t, bool own_output);

  Tensor tensor_;
  std::weak_ptr<GradMeta> leaf_;  // of a saved leaf; any other input's edge is in tensor_
  std::uint32_t version_ = 0;
  bool was_defined_ = false;
  bool own_output_ = false;
};

// Bytes that saved tensors hold now, each counted once per SavedTensor (a storage saved by two ops
// counts twice).
std::size_t saved_bytes();

}  // namespace duet
