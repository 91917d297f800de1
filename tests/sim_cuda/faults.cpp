// A full fiber stack faults in its guard page, where no handler could run: signals get a stack of
// their own.
#include "tests/sim_cuda/faults.h"

#include <signal.h>

#include <cstddef>

#include "tests/sim_cuda/engine.h"
#include "tests/sim_cuda/fiber.h"
#include "tests/sim_cuda/shared_memory.h"

namespace sim {
namespace {

struct sigaction former;

void on_fault(int signal, siginfo_t* info, void* context) {
  explain_fault(info->si_addr);
  if ((former.sa_flags & SA_SIGINFO) != 0) {
    former.sa_sigaction(signal, info, context);
  } else if (former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN) {
    former.sa_handler(signal);
  } else if (in_kernel()) {
    fail("reads or writes address %p, where no memory is", info->si_addr);
  } else {
    sigaction(signal, &former, nullptr);  // the access is tried again, and now ends the process
  }
}

}  // namespace

void install_fault_handler() {
  static bool installed = false;
  if (installed) return;
  installed = true;
  stack_t stack{};
  sigaltstack(nullptr, &stack);
  if ((stack.ss_flags & SS_DISABLE) != 0) {
    alignas(16) static unsigned char memory[std::size_t{64} << 10];
    stack = {};
    stack.ss_sp = memory;
    stack.ss_size = sizeof memory;
    sigaltstack(&stack, nullptr);
  }
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &former);
}

void explain_fault(const void* address) {
  if (in_stack_guard(address)) {
    fail("the thread's stack of %zu bytes is full; sim::options.stack_bytes sets it",
         options.stack_bytes);
  }
  if (in_shared_guard(address)) fail_shared_guard(address);
}

}  // namespace sim
