// What the tests of memory plans share, on the CPU and on a GPU.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "models/enum_names.h"
#include "runtime/allocator.h"
#include "train/bench.h"
#include "train/device_choice.h"
#include "train/profile/plan.h"

namespace duet::test {

inline constexpr CouplingKind kCouplings[] = {
    CouplingKind::none,      CouplingKind::euler,
    CouplingKind::leapfrog,  CouplingKind::symplectic_euler,
    CouplingKind::uncoupled, CouplingKind::uncoupled_k,
    CouplingKind::affine,    CouplingKind::hamiltonian_potential};
inline constexpr RecomputeMode kRecomputeModes[] = {RecomputeMode::none, RecomputeMode::mlp,
                                                    RecomputeMode::attn, RecomputeMode::block};

inline RunConfig run_of(const char* name, const char* device) {
  RunConfig run;
  run.preset = name;
  run.model = preset(name, preset_family(name));
  run.device = device;
  run.threads = 1;
  return run;
}

// The peak of real steps on the run's device, in bytes above what was live before.
inline std::uint64_t measured(const RunConfig& run, int steps) {
  const Device device = training_device(run.device);
  Allocator& memory = allocator(device);
  const std::size_t before = memory.stats().allocated;
  memory.reset_peak();
  StepBench bench(run, device);
  for (int i = 0; i < steps; ++i) bench.step();
  return memory.stats().peak_allocated - before;
}

// A model in all couplings, recompute modes, and 1 and 3 micro-batches.
inline void expect_exact(RunConfig run, int steps) {
  int cases = 0;
  for (const CouplingKind coupling : kCouplings) {
    for (const RecomputeMode recompute : kRecomputeModes) {
      for (const std::int64_t micro_batches : {1, 3}) {
        run.model.coupling = coupling;
        run.model.recompute = recompute;
        run.gradient_accumulation_steps = micro_batches;
        EXPECT_EQ(plan_memory(run).step, measured(run, steps))
            << run.preset << " on " << run.device << ", coupling " << enum_name(run.model.coupling)
            << ", recompute " << enum_name(run.model.recompute) << ", "
            << run.gradient_accumulation_steps << " micro-batches";
        ++cases;
      }
    }
  }
  EXPECT_EQ(cases, 64);
}

}  // namespace duet::test
