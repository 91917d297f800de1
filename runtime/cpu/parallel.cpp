#include "runtime/cpu/parallel.h"

#include <omp.h>
#include <sched.h>

#include <cstdlib>

#include "runtime/cpu/cgroup.h"

namespace duet {
namespace {

int& chosen_threads() {
  static int threads = [] {
    const char* variable = std::getenv("OMP_NUM_THREADS");
    const int wanted = variable != nullptr ? std::atoi(variable) : 0;
    const int n = wanted >= 1 ? wanted : available_threads();
    omp_set_num_threads(n);
    return n;
  }();
  return threads;
}

}  // namespace

int affinity_cpus() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(CPU_COUNT(&set), 1) : 1;
}

int available_threads() {
  const int cpus = affinity_cpus(), quota = cgroup_quota();
  return quota > 0 ? std::min(cpus, quota) : cpus;
}

int num_threads() { return chosen_threads(); }

void set_num_threads(int n) {
  chosen_threads() = n;
  omp_set_num_threads(n);
}

namespace detail {

void run_parallel(std::int64_t chunks, void (*body)(void*, std::int64_t), void* context) {
  if (chunks <= 1 || num_threads() == 1 || omp_in_parallel()) {
    for (std::int64_t i = 0; i < chunks; ++i) body(context, i);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1)
  for (std::int64_t i = 0; i < chunks; ++i) body(context, i);
}

}  // namespace detail
}  // namespace duet
