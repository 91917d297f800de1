// How large a model is, and how much arithmetic a step: the number behind GFLOP/s.
#pragma once

#include "models/config.h"

namespace duet {

// Floating-point operations per token of one forward and backward over sequences of T tokens.
// Counts matrix products (a multiply and an add are two), the visible half of causal attention, and
// the coupling; not norms, activations, the optimizer, or what recompute runs again.
double flops_per_token(const ModelConfig& config, std::int64_t t);

// The same of what backward runs once more under config.recompute.
double recomputed_flops_per_token(const ModelConfig& config, std::int64_t t);

// Numbers in its parameters, counted on a model that is built on meta: it takes no memory. Throws
// Error(usage) if the configuration does not fit together.
std::int64_t parameters_of(const ModelConfig& config);

}  // namespace duet
