// The one place that knows which walk computes which coupling.
#pragma once

#include "ops/coupling/affine_walk.h"
#include "ops/coupling/pair_walk.h"

namespace duet {

// Calls f(walk) with the walk of sizes.map.
template <class Math, class F>
void with_walk(const CouplingSizes& sizes, const CouplingKernels::Inputs& in, View workspace,
               std::int64_t threads, bool backward, F f) {
  switch (sizes.map) {
    case CouplingMap::euler:
      return f(PairWalk<EulerStep<Math>, Math>(sizes, in, workspace, threads, backward));
    case CouplingMap::leapfrog:
      return f(PairWalk<LeapfrogStep<Math>, Math>(sizes, in, workspace, threads, backward));
    case CouplingMap::symplectic_euler:
      return f(PairWalk<SymplecticEulerStep<Math>, Math>(sizes, in, workspace, threads, backward));
    case CouplingMap::uncoupled:
      return f(PairWalk<UncoupledStep<Math>, Math>(sizes, in, workspace, threads, backward));
    case CouplingMap::affine:
      return f(AffineWalk<Math>(sizes, in, workspace, threads, backward));
  }
}

}  // namespace duet
