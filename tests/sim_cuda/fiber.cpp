// Stacks, and the change from one to another: the callee-saved registers go onto the stack that is
// left, the stack pointer changes, and the other stack's registers come back.
#include "tests/sim_cuda/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/sim_cuda/engine.h"
#include "tests/sim_cuda/sanitizers.h"

// sim_switch_stack(&left_stack_pointer, entered_stack_pointer)
extern "C" void sim_switch_stack(void** left, void* entered);

#if defined(__x86_64__)
asm(R"(
.text
.globl sim_switch_stack
.hidden sim_switch_stack
.type sim_switch_stack, @function
sim_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size sim_switch_stack, . - sim_switch_stack
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl sim_switch_stack
.hidden sim_switch_stack
.type sim_switch_stack, %function
sim_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size sim_switch_stack, . - sim_switch_stack
)");
#else
#error "sim_cuda: write sim_switch_stack for this processor"
#endif

namespace sim {
namespace {

#if defined(__x86_64__)
constexpr int kSavedWords = 6;  // registers
constexpr int kReturnWord = 6;  // where `ret` looks
constexpr int kFrameWords =
    8;  // and a word of padding: entry() finds the stack aligned as by a call
#else
constexpr int kSavedWords = 20;
constexpr int kReturnWord = 11;  // x30
constexpr int kFrameWords = 20;
#endif
static_assert(kSavedWords <= kFrameWords && kReturnWord < kFrameWords);

std::vector<std::unique_ptr<Fiber>> fibers;
Fiber* left = nullptr;  // the fiber from which the last switch came
std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

Fiber* new_fiber(std::size_t stack_bytes, void (*entry)()) {
  stack_bytes = (stack_bytes + page() - 1) / page() * page();
  void* memory = mmap(nullptr, page() + stack_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail("no memory for a stack of %zu bytes", stack_bytes);
  mprotect(memory, page(), PROT_NONE);
  auto* stack = static_cast<unsigned char*>(memory) + page();
  // Equal frames of different fibers start at different cache sets, or they would evict each other.
  const std::size_t colour = fibers.size() % 16 * 256;
  auto* frame = reinterpret_cast<std::uintptr_t*>(stack + stack_bytes - colour) - kFrameWords;
  frame[kReturnWord] = reinterpret_cast<std::uintptr_t>(entry);
  fibers.push_back(std::make_unique<Fiber>(Fiber{frame, stack, stack_bytes, nullptr}));
  return fibers.back().get();
}

SIM_NO_TSAN void switch_fiber(Fiber& from, Fiber& to) {
  left = &from;
  if constexpr (kAsan) __sanitizer_start_switch_fiber(&from.asan_frames, to.stack, to.bytes);
  sim_switch_stack(&from.stack_pointer, to.stack_pointer);
  // Here `from` goes on; `left` is another fiber now.
  if constexpr (kAsan)
    __sanitizer_finish_switch_fiber(from.asan_frames, &left->stack, &left->bytes);
}

SIM_NO_TSAN void arrived() {
  // The main stack's bounds are known from here on.
  if constexpr (kAsan) __sanitizer_finish_switch_fiber(nullptr, &left->stack, &left->bytes);
}

bool in_stack_guard(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const auto& fiber : fibers) {
    const auto stack = reinterpret_cast<std::uintptr_t>(fiber->stack);
    if (at < stack && at + page() >= stack) return true;
  }
  return false;
}

}  // namespace sim
