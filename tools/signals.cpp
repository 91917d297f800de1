#include "tools/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <initializer_list>

#include "runtime/stop.h"

namespace duet {
namespace {

std::atomic<std::int64_t> g_first_ms{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);  // safe in a handler

std::int64_t monotonic_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // safe in a handler
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// One Ctrl-C can arrive twice: `timeout` signals the child and then its group. Only a signal that
// comes later is a second wish.
constexpr std::int64_t kSameWishMs = 500;

void on_stop(int number) {
  if (request_stop(number)) {
    g_first_ms = monotonic_ms();
    return;
  }
  // The others come from machines that repeat themselves (SIGXCPU every second): they never hurry.
  if (number != SIGINT && number != SIGTERM) return;
  const std::int64_t first = g_first_ms;
  if (first != 0 && monotonic_ms() - first > kSameWishMs) _exit(128 + number);
}

void on_quit(int number) { _exit(128 + number); }

void install(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

}  // namespace

void install_stop_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGPWR}) {
    install(number, on_stop);
  }
  install(SIGQUIT, on_quit);
  for (const int number : {SIGHUP, SIGALRM}) install(number, SIG_IGN);
}

}  // namespace duet
