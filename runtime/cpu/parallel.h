// Threads on the CPU: how many, and the one way to split a loop over them (OpenMP, which oneDNN
// shares).
#pragma once

#include <algorithm>
#include <cstdint>

namespace duet {

// What this process may use: the smaller of its CPU affinity and its cgroup quota (never the host's
// core count), or what set_num_threads() or OMP_NUM_THREADS asked for: as many of those as OpenMP
int num_threads();            // grants. Throws as start_team() of openmp.h, which says more.
void set_num_threads(int n);  // The same. Requires n >= 1.
int available_threads();      // min(affinity, cgroup quota), whatever was chosen
int affinity_cpus();          // CPUs this process may run on, wherever its main thread is bound

namespace detail {
void run_parallel(std::int64_t chunks, void (*body)(void*, std::int64_t), void* context);
}

// Calls f(i) for i in [0, chunks), spread over the threads. Which thread runs which i does not
// matter to the result if each i writes its own memory: so cut the work into chunks whose number
// does not depend on the thread count, and results keep their bits. What f throws, the caller gets.
template <class F>
void parallel_chunks(std::int64_t chunks, F&& f) {
  detail::run_parallel(
      chunks,
      [](void* context, std::int64_t i) {
        (*static_cast<std::remove_reference_t<F>*>(context))(i);
      },
      const_cast<void*>(static_cast<const void*>(&f)));
}

// Calls f(begin, end) over [0, n) in pieces of about `grain` elements.
template <class F>
void parallel_for(std::int64_t n, std::int64_t grain, F&& f) {
  if (n <= 0) return;
  const std::int64_t chunks = (n + grain - 1) / grain;
  parallel_chunks(chunks, [&](std::int64_t i) { f(i * grain, std::min(n, (i + 1) * grain)); });
}

}  // namespace duet
