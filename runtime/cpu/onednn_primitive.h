// oneDNN's matrix products as primitives, made once per shape and thread and kept.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>

#include "runtime/cpu/onednn.h"
#include "runtime/cpu/onednn_compat.h"

namespace duet {

// One product of fixed sizes and strides. Its code is generated when it first runs, so that a plan,
// which asks for the scratch of many products, stays small.
class GemmPrimitive {
 public:
  GemmPrimitive(const ConstView& a, const ConstView& b, const View& c, const GemmOptions& options);

  // The name that oneDNN gives its kernel: "gemm:jit", "brg:avx512_core".
  const std::string& implementation() const { return implementation_; }
  // Bytes of options.scratch that execute() wants.
  std::size_t scratch_bytes() const { return scratch_bytes_; }
  // Requires: the sizes and strides that the primitive was made with. Throws Error(memory) where
  // there is no room for its code, Error(internal) where the scratch is too small.
  void execute(const ConstView& a, const ConstView& b, const View& c, const GemmOptions& options);

 private:
  void generate();
  void set(int argument, const void* data);

  dnnl::matmul::primitive_desc descriptor_;
  std::optional<dnnl::matmul> matmul_;  // once it ran
  std::string implementation_;
  std::size_t scratch_bytes_ = 0;
  std::unordered_map<int, dnnl::memory> arguments_;
};

// The calling thread's primitive for the product, made at its first use. Throws dnnl::error where
// oneDNN refuses.
GemmPrimitive& gemm_primitive(const ConstView& a, const ConstView& b, const View& c,
                              const GemmOptions& options);

}  // namespace duet
