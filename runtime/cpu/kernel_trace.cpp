#include "runtime/cpu/kernel_trace.h"

#include <hwy/highway.h>

#include <atomic>
#include <mutex>

#include "runtime/cpu/cpu_info.h"

namespace duet {
namespace {

std::atomic<bool> tracing{false};
std::mutex mutex;
std::set<std::string> seen;

}  // namespace

// Highway chooses its target at the first dispatch and keeps it: forgotten, it is chosen again by
// the next kernel, and that it was tells that one ran.
KernelTrace::KernelTrace() {
  seen.clear();
  hwy::GetChosenTarget().DeInit();
  tracing = true;
}

KernelTrace::~KernelTrace() { tracing = false; }

std::set<std::string> KernelTrace::onednn() const {
  const std::lock_guard lock(mutex);
  return seen;
}

std::string KernelTrace::highway() const {
  return hwy::GetChosenTarget().IsInitialized() ? cpu_info().vector_target : "";
}

void trace_onednn(const std::string& implementation) {
  if (!tracing.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex);
  seen.insert(implementation);
}

}  // namespace duet
