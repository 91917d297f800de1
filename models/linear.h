// The two smallest modules, and how a parameter is made.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "models/module.h"
#include "ops/ops.h"

namespace duet {

struct TensorOptions {
  DType dtype = DType::f32;
  Device device = kCpu;
};

// An uninitialised parameter, owned by the memory scope `name`. Weight decay applies to two or more
// dimensions (embeddings and coupling weights among them), not to norms, biases, step sizes.
inline Parameter make_parameter(std::string_view name, const Shape& shape,
                                const TensorOptions& options,
                                std::vector<Parameter::Part> parts = {}) {
  const MemoryScope scope(name);
  return Parameter(Tensor::empty(shape, options.dtype, options.device), std::move(parts),
                   /*decayed=*/shape.ndim() >= 2);
}

// x W^T + b
struct Linear {
  Linear() = default;
  Linear(std::int64_t in, std::int64_t out, bool with_bias, const TensorOptions& options)
      : weight(make_parameter("weight", {out, in}, options)) {
    if (with_bias) bias = make_parameter("bias", {out}, options);
  }
  // [*, in] -> [*, out]
  Tensor operator()(const Tensor& x) const { return linear(x, weight, bias); }
  void visit(auto&& f) {
    f("weight", weight);
    f("bias", bias);
  }

  Parameter weight;  // [out, in]
  Parameter bias;    // [out]; undefined without biases
};

// A table of rows: token embeddings, learned positions.
struct Embedding {
  Embedding() = default;
  Embedding(std::int64_t rows, std::int64_t width, const TensorOptions& options)
      : weight(make_parameter("weight", {rows, width}, options)) {}
  void visit(auto&& f) { f("weight", weight); }

  Parameter weight;  // [rows, C]; undefined where the model has no such table
};

}  // namespace duet
