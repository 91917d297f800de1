// How much arithmetic a step is: the number behind GFLOP/s.
#pragma once

#include "models/config.h"

namespace duet {

// Floating-point operations per token of one forward and backward over sequences of T tokens.
// Counts matrix products (a multiply and an add are two), the visible half of causal attention, and
// the coupling; not norms, activations, the optimizer, or what recompute runs again.
double flops_per_token(const ModelConfig& config, std::int64_t t);

// The same of what backward runs once more under config.recompute.
double recomputed_flops_per_token(const ModelConfig& config, std::int64_t t);

}  // namespace duet
