#include "tools/signals.h"

#include <unistd.h>

#include <csignal>
#include <ctime>
#include <initializer_list>

namespace duet {
namespace {

std::atomic<int> g_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);  // safe in a handler

std::atomic<std::int64_t> g_first_ms{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

std::int64_t monotonic_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // safe in a handler
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// One Ctrl-C can arrive twice: `timeout` signals the child and then its group. Only a signal that
// comes later is a second wish.
constexpr std::int64_t kSameWishMs = 500;

void on_signal(int number) {
  const int counted = number == SIGUSR1 ? SIGTERM : number;
  int none = 0;
  if (g_signal.compare_exchange_strong(none, counted)) {
    g_first_ms = monotonic_ms();
  } else if (const std::int64_t first = g_first_ms;
             first != 0 && monotonic_ms() - first > kSameWishMs) {
    _exit(128 + counted);
  }
}

}  // namespace

const std::atomic<int>& install_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) sigaction(number, &action, nullptr);
  std::signal(SIGHUP, SIG_IGN);
  return g_signal;
}

}  // namespace duet
