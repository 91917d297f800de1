#include "runtime/cpu/parallel.h"

#include <omp.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "runtime/cpu/cgroup.h"
#include "runtime/cpu/openmp.h"
#include "runtime/error.h"

namespace duet {
namespace {

// The count in OMP_NUM_THREADS, a number or a list by level; 0 where OpenMP ignores it too.
int variable_threads() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr) return 0;
  while (*text == ' ') ++text;
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), n);
  if (error != std::errc() || n < 1 || (*end != '\0' && *end != ',' && *end != ' ')) return 0;
  check(n <= kMostThreads, ErrorKind::usage, "OMP_NUM_THREADS: too many threads: got ", n,
        ", expected 1 to ", kMostThreads, "; unset it, or give --threads");
  return static_cast<int>(n);
}

int& granted_threads() {
  static int threads = 0;  // none granted yet
  return threads;
}

}  // namespace

int available_threads() {
  const int cpus = affinity_cpus(), quota = cgroup_quota();
  return quota > 0 ? std::min(cpus, quota) : cpus;
}

int num_threads() {
  if (granted_threads() == 0) {
    const int chosen = variable_threads();
    set_num_threads(chosen > 0 ? chosen : available_threads());
  }
  return granted_threads();
}

void set_num_threads(int n) { granted_threads() = start_team(n); }

namespace detail {

void run_parallel(std::int64_t chunks, void (*body)(void*, std::int64_t), void* context) {
  if (chunks <= 1 || num_threads() == 1 || omp_in_parallel()) {
    for (std::int64_t i = 0; i < chunks; ++i) body(context, i);
    return;
  }
  // An exception that left the region would end the process.
  std::exception_ptr first;
  std::atomic<bool> failed = false;
#pragma omp parallel for schedule(dynamic, 1)
  for (std::int64_t i = 0; i < chunks; ++i) {
    if (failed.load(std::memory_order_relaxed)) continue;
    try {
      body(context, i);
    } catch (...) {
      if (!failed.exchange(true)) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace detail
}  // namespace duet
