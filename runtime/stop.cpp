#include "runtime/stop.h"

#include <atomic>

namespace duet {
namespace {

std::atomic<int> g_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);  // safe in a signal handler

}  // namespace

bool request_stop(int signal) noexcept {
  int none = 0;
  return g_signal.compare_exchange_strong(none, signal);
}

int stop_requested() noexcept { return g_signal.load(std::memory_order_relaxed); }

void forget_stop() noexcept { g_signal = 0; }

void check_stop() {
  if (const int signal = stop_requested(); signal != 0) throw Stopped{signal};
}

}  // namespace duet
