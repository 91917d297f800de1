// recompute: run a part of the model again in backward instead of keeping its activations.
//
//   Tensor y = recompute("block", [&](const std::vector<Tensor>& in) { return block(in[0]); },
//   {x});
//
// Forward keeps only the inputs. Backward runs `f` once more with a graph and walks that graph, so
// parameters that `f` captures get their gradients as leaves. Bits are the same as without, because
// every op is deterministic and dropout draws are keyed, not drawn from a state.
// Requires: `f` is a pure function of inputs and parameters, and what it refers to outlives the
// graph.
#pragma once

#include <functional>
#include <vector>

#include "autograd/node.h"

namespace duet {

using RecomputeFunction = std::function<Tensor(const std::vector<Tensor>&)>;

Tensor recompute(const char* name, RecomputeFunction f, const std::vector<Tensor>& inputs);

}  // namespace duet
