// OpCase: one row of the table that proves the ops. tests/ops/op_cases.h joins the rows of all
// families; tests/ops/*_test.cpp run every row through gradcheck, oracle, golden values, strides,
// empty inputs, determinism, saved bytes and a perturbed gradient that must be caught.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace duet::test {

using Tensors = std::vector<Tensor>;

// What the row states about a NaN or an infinity in an input: that NaN, or both, reach those
// elements that they reach in the oracle, and no others.
enum class Specials { none, nan, all };

struct OpCase {
  std::string name;           // "rms_norm", "rms_norm_wide": letters, digits, _; begins with the op
  std::vector<Shape> inputs;  // the floating inputs, in order; gradcheck differentiates each
  // The op. Integer inputs (ids, targets) and options are captured or made inside, from the shapes
  // of the inputs it gets, so that golden files may use other sizes.
  std::function<Tensors(const Tensors&)> call;
  // The same in naive double loops, written apart from the product's kernels, on contiguous f64
  // inputs, without autograd.
  std::function<Tensors(const Tensors&)> oracle;

  double low = -2, high = 2;        // range of the random inputs
  double rtol = 1e-5, atol = 1e-5;  // f32 output and gradients against the f64 oracle
  double grad_rtol = 1e-4, grad_atol = 1e-4;
  // Bytes that SavedTensors hold after a f32 forward with every input requiring grad
  // (autograd/saved_tensor.h counts them); -1: not stated yet, which fails.
  std::int64_t saved_bytes = -1;
  bool exact_on_integers = false;  // small integer inputs must match to the last bit
  bool strided = true;             // accepts inputs of any strides
  bool empty_ok = false;           // accepts a size of 0 in dim 0 of the first input
  bool differentiable = true;      // outputs have a gradient
  bool broadcasts = false;         // two inputs of the same shape, either may be the smaller one
  Specials specials = Specials::all;
  // The check of large inputs scales them so far, or less where the oracle or a gradient grows
  // beyond 1e15 or ends. What is lowered here says why.
  double large = 100;
  std::string large_why;
  // `duet op check` times the first row of an op that says with which inputs.
  std::vector<Shape> bench;
  double bench_flops = 0;  // of one forward on them; 0: bound by memory
  double bench_bytes = 0;  // of a memory-bound one; 0: inputs and outputs, each once
  std::string golden;      // entry of tests/golden/ops.safetensors; "" for none
};

}  // namespace duet::test
