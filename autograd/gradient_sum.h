// How gradients that meet are added: in place where nobody else sees the bytes, or as an op of the
// graph, to be differentiated again.
#pragma once

#include <vector>

#include "autograd/node.h"

namespace duet {

// True when nobody else can see the tensor's bytes and it has no others: then it may be written or
// adopted.
bool is_exclusive(const Tensor& t);

// a + b; into the bytes of one of them where nobody else sees those.
Tensor sum_of(Tensor a, Tensor b);

// The sum of one part (a copy) or more, with an edge to each.
Tensor differentiable_sum(const std::vector<Tensor>& parts);

[[noreturn]] void throw_no_second_order(const char* op);

}  // namespace duet
