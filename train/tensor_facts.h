// What the values of a tensor are like: how many are not finite, where the first of those is, and
// how large the others are. Reads the tensor where it lies, or a copy on the host; takes nothing
// from the memory of a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/module.h"

namespace duet {

struct TensorFacts {
  Shape shape;
  std::int64_t bad = 0;     // elements that are NaN or infinite
  std::int64_t first = -1;  // the first of them, counted row by row
  double first_value = 0;   // NaN without its sign
  double largest = 0;       // absolute value, among the finite elements

  bool finite() const { return bad == 0; }
};

// Every element of an integer tensor is finite, and so are those of meta, which has no values.
TensorFacts facts_of(const Tensor& x);

// "3 of 512 elements are not finite, the first, nan, at [0, 7]". Requires !facts.finite().
std::string words_of(const TensorFacts& facts);

// The tensors that are not finite: "a.weight: 3 of 512 elements ...", then how many more there are;
// empty where all are finite.
std::string words_of_non_finite(const std::vector<NamedTensor>& tensors);

// A number as messages show it: "3.1e+38", "nan".
std::string short_number(double value);

}  // namespace duet
