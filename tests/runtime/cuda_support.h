// What tests on a GPU share. They run on a real one (label gpu) or on the simulated one (label
// sim), and are skipped where there is neither, unless DUET_REQUIRE_CUDA=1, which makes that a
// failure.
#pragma once

#include <vector>

#include "runtime/allocator.h"
#include "runtime/memory_ops.h"
#include "tests/runtime/gpu.h"
#if DUET_SIM_CUDA
#include "tests/sim_cuda/engine.h"
#include "tests/sim_cuda/runtime.h"
#endif

namespace duet::test {

// In which order the simulated GPU takes threads, and runs what the streams were given.
struct Orders {
  const char* name;
  int threads;  // sim::Order
  unsigned seed;
  int streams;  // sim::Schedule
};

#if DUET_SIM_CUDA
inline const std::vector<Orders>& all_orders() {
  using enum sim::Order;
  using sim::Schedule;
  const auto of = [](const char* name, sim::Order threads, unsigned seed, Schedule streams) {
    return Orders{name, static_cast<int>(threads), seed, static_cast<int>(streams)};
  };
  static const std::vector<Orders> all{
      of("forward", forward, 0, Schedule::lazy), of("reverse", reverse, 0, Schedule::lazy),
      of("random_1", random, 1, Schedule::random), of("random_2", random, 2, Schedule::lazy),
      of("random_3", random, 3, Schedule::random)};
  return all;
}

inline void use_orders(const Orders& orders) {
  synchronize(kCuda);
  sim::options.order = static_cast<sim::Order>(orders.threads);
  sim::options.seed = orders.seed;
  sim::runtime_options().schedule = static_cast<sim::Schedule>(orders.streams);
  sim::runtime_options().seed = orders.seed + 1;
}
#else
// A GPU has its own.
inline const std::vector<Orders>& all_orders() {
  static const std::vector<Orders> all{{"hardware", 0, 0, 0}, {"hardware_again", 0, 0, 0}};
  return all;
}
inline void use_orders(const Orders&) {}
#endif

// Every tensor on the GPU has an allocation of its own, until the end of the C++ block: one that is
// guarded, in the simulator. So has every tensor of a plan.
class OwnAllocations {
 public:
  OwnAllocations()
      : previous_(allocator(kCuda).set_pass_through(true)),
        planned_(allocator(kMetaCuda).set_pass_through(true)) {}
  ~OwnAllocations() {
    allocator(kCuda).set_pass_through(previous_);
    allocator(kMetaCuda).set_pass_through(planned_);
  }
  OwnAllocations(const OwnAllocations&) = delete;
  OwnAllocations& operator=(const OwnAllocations&) = delete;

 private:
  bool previous_, planned_;
};

}  // namespace duet::test
