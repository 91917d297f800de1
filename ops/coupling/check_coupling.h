// What every coupling refuses, before it allocates anything.
#pragma once

#include "ops/ops.h"

namespace duet {

// Throws Error(shape | usage), naming the op, unless q is [B, T, Hq, D], k [B, T, Hkv, D] with Hkv
// a divisor of Hq, and the options fit.
void check_pair(const char* op, const Tensor& q, const Tensor& k, const CouplingOptions& options,
                bool invertible);

struct SteppedInputs {
  const Tensor &q, &k, &w1, &w2, &dt;
};
struct SteppedTraits {
  bool one_output;  // of the net: a potential; else D outputs
  bool invertible;  // may run back
};
// The same, and that w1 is [G, h, D], w2 [G, D or 1, h] and dt [Hkv] or [G], of one dtype and
// device; G is Hkv or 1.
void check_stepped_coupling(const char* op, const SteppedInputs& in, const CouplingOptions& options,
                            const SteppedTraits& traits);

}  // namespace duet
