#include "tools/signals.h"

#include <unistd.h>

#include <csignal>

namespace duet {
namespace {

std::atomic<int> g_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);  // safe in a handler

void on_signal(int number) {
  const int counted = number == SIGUSR1 ? SIGTERM : number;
  int none = 0;
  if (!g_signal.compare_exchange_strong(none, counted)) _exit(128 + counted);
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
