#include "runtime/cpu/parallel.h"

#include <omp.h>
#include <sched.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace duet {
namespace {

// CPUs granted by the cgroup (v2 cpu.max, v1 cfs quota), rounded up; 0 when unlimited or unknown.
int cgroup_quota() {
  double quota = 0, period = 0;
  std::string word;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> word >> period && word != "max") {
    quota = std::strtod(word.c_str(), nullptr);
  } else {
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  if (quota <= 0 || period <= 0) return 0;
  return std::max(1, static_cast<int>((quota + period - 1) / period));
}

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

int available_threads() {
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  if (const int quota = cgroup_quota(); quota > 0) n = std::min(n, quota);
  return std::max(n, 1);
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
