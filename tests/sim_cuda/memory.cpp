// Guarded device memory, and the handler of SIGSEGV that tracks touches and explains wrong ones.
#include "tests/sim_cuda/memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>

#include "tests/sim_cuda/engine.h"
#include "tests/sim_cuda/runtime.h"

namespace sim {

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kPart = std::size_t{64} << 10;  // of an allocation, opened at one touch
enum Parts : unsigned char { kClosed, kReadable, kWritable };
constexpr unsigned char kFill = 0xFF;  // NaN as float, double, bf16 and half
// Beside an allocation: a signalling NaN, which sums and products turn into another NaN, so that a
// result computed and stored out of bounds shows.
constexpr unsigned char kPad[4] = {0xA5, 0xA5, 0xA5, 0xFF};

struct Memory {
  std::uintptr_t begin = 0;  // of the reserved range
  std::uintptr_t next = 0;   // not yet given out
  std::uintptr_t end = 0;
  std::deque<Allocation> allocations;  // by address: the range is given out upwards
  std::vector<Allocation*> touched;
  bool open_writable = false;
  std::size_t live_bytes = 0;
  std::int64_t live = 0;
  std::int64_t fail_in = 0;      // this many cudaMallocs from now; 0: none
  struct sigaction before = {};  // who handled SIGSEGV until now
};

Memory& memory();

// The operation that runs on this thread; nullptr: host code.
thread_local const char* current_operation = nullptr;

void protect(const Allocation& a, std::size_t first_part, std::size_t end_part, Parts state) {
  const int flags = state == kClosed     ? PROT_NONE
                    : state == kReadable ? PROT_READ
                                         : PROT_READ | PROT_WRITE;
  const std::size_t begin = first_part * kPart;
  const std::size_t end = std::min(end_part * kPart, a.page_bytes);
  if (mprotect(reinterpret_cast<void*>(a.pages + begin), end - begin, flags) != 0) {
    fail(
        "mprotect of device allocation #%d failed: too many pieces for this system's "
        "vm.max_map_count",
        a.number);
  }
}

// Opens the part that holds the address, and ahead of it as many as are open already: a sweep over
// a large allocation faults a few times only.
void open_part(Allocation& a, std::uintptr_t address, Parts state) {
  const std::size_t first = (address - a.pages) / kPart;
  const std::size_t most = std::min(a.parts.size(), first + std::max<std::size_t>(a.open_parts, 1));
  std::size_t end = first;
  for (; end < most && a.parts[end] < state; ++end) {
    a.open_parts += a.parts[end] == kClosed ? 1U : 0U;
    a.parts[end] = state;
  }
  protect(a, first, end, state);
  a.open_begin = a.open_end == 0 ? first : std::min(a.open_begin, first);
  a.open_end = std::max(a.open_end, end);
}

// The allocation that an address belongs to or is nearest to; the range holds at least one.
Allocation& nearest(std::uintptr_t address) {
  auto& all = memory().allocations;
  auto after = std::upper_bound(all.begin(), all.end(), address,
                                [](std::uintptr_t x, const Allocation& a) { return x < a.start; });
  if (after == all.begin()) return *after;
  const auto before = std::prev(after);
  if (after != all.end() && address >= before->end() &&
      after->start - address < address - before->end()) {
    return *after;
  }
  return *before;
}

[[noreturn]] void explain_touch(std::uintptr_t address, bool write) {
  const char* verb = write ? "writes" : "reads";
  if (memory().allocations.empty()) fail("an address of device memory, of which there is none yet");
  const Allocation& a = nearest(address);
  const auto offset = static_cast<long long>(address) - static_cast<long long>(a.start);
  if (current_operation == nullptr) {
    fail(
        "host code %s device memory: allocation #%d (%zu bytes%s) at offset %lld; copy it with "
        "cudaMemcpy",
        verb, a.number, a.bytes, a.live ? "" : ", freed", offset);
  }
  if (!a.live) {
    fail("use after free: %s %s freed allocation #%d (%zu bytes) at offset %lld", current_operation,
         verb, a.number, a.bytes, offset);
  }
  fail("out of bounds: %s %s at offset %lld of allocation #%d (%zu bytes), %s", current_operation,
       verb, offset, a.number, a.bytes, offset < 0 ? "before its start" : "past its end");
}

bool is_write(const void* context) {
  constexpr greg_t kWriteBit = 2;  // of the page fault's error code
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWriteBit) != 0;
}

// A first touch of device memory by an operation opens the allocation and goes on; a wrong touch is
// explained; any other fault is the host program's own and crashes as it would have.
void handle_fault(int /*signal*/, siginfo_t* info, void* context) {
  Memory& m = memory();
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const bool write = is_write(context);
  if (address >= m.begin && address < m.end) {
    Allocation* a = m.allocations.empty() ? nullptr : &nearest(address);
    const Parts wanted = write || m.open_writable ? kWritable : kReadable;
    if (current_operation != nullptr && a != nullptr && a->live && address >= a->pages &&
        address < a->pages + a->page_bytes && a->parts[(address - a->pages) / kPart] < wanted) {
      if (a->open_parts == 0) m.touched.push_back(a);
      a->written = a->written || wanted == kWritable;
      open_part(*a, address, wanted);
      return;
    }
    explain_touch(address, write);
  }
  explain_fault(info->si_addr);
  if (current_operation != nullptr) {
    fail("%s %s the address %p, which is neither device memory nor mapped host memory",
         current_operation, write ? "writes" : "reads", info->si_addr);
  }
  sigaction(SIGSEGV, &m.before, nullptr);  // the instruction faults once more, without us
}

void reserve_addresses(Memory& m) {
  for (std::size_t bytes = std::size_t{1} << 40; bytes >= std::size_t{1} << 32; bytes /= 2) {
    void* range =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) continue;
    m.begin = m.next = reinterpret_cast<std::uintptr_t>(range);
    m.end = m.begin + bytes;
    return;
  }
  fail("cannot reserve 4 GiB of addresses for device memory: is there a limit (ulimit -v)?");
}

Memory& memory() {
  static Memory& m = *[] {
    auto made = std::make_unique<Memory>();
    reserve_addresses(*made);
    if (const char* n = std::getenv("DUET_SIM_FAIL_MALLOC")) made->fail_in = std::atoll(n);
    struct sigaction action = {};
    action.sa_sigaction = handle_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &made->before);
    return made.release();  // lives until the process ends: static destructors may free memory
  }();
  return m;
}

// Faults run on a stack of their own, so that a kernel that overflowed its stack can be told.
void use_signal_stack() {
  constexpr std::size_t kBytes = std::size_t{64} << 10;
  static thread_local bool done = false;
  if (done) return;
  done = true;
  stack_t now = {};
  sigaltstack(nullptr, &now);
  if ((now.ss_flags & SS_DISABLE) == 0) return;  // a sanitizer's
  static thread_local char* stack = nullptr;     // for as long as faults may come
  stack = std::make_unique<char[]>(kBytes).release();
  stack_t ours = {};
  ours.ss_sp = stack;
  ours.ss_size = kBytes;
  sigaltstack(&ours, nullptr);
}

// Bytes beside the allocation on its own pages, which a guard page cannot watch.
void fill_pad(std::uintptr_t from, std::uintptr_t to) {
  for (; from < to; ++from) *reinterpret_cast<unsigned char*>(from) = kPad[from % sizeof kPad];
}
bool is_intact(std::uintptr_t from, std::uintptr_t to) {
  while (from < to && *reinterpret_cast<unsigned char*>(from) == kPad[from % sizeof kPad]) ++from;
  return from == to;
}

void check_pads(const Allocation& a) {
  const bool before = a.parts.front() == kWritable && !is_intact(a.pages, a.start);
  const bool behind = a.parts.back() == kWritable && !is_intact(a.end(), a.pages + a.page_bytes);
  if (before || behind) {
    fail("out of bounds: %s wrote %s allocation #%d (%zu bytes)",
         current_operation == nullptr ? "an operation (DUET_SIM_STREAMS=eager names it)"
                                      : current_operation,
         before ? "before the start of" : "past the end of", a.number, a.bytes);
  }
}

}  // namespace

void* allocate_device(std::size_t bytes) {
  Memory& m = memory();
  if (m.fail_in > 0 && --m.fail_in == 0) return nullptr;
  const std::size_t capacity = runtime_options().memory;
  if (bytes > capacity || m.live_bytes > capacity - bytes) return nullptr;
  Allocation a;
  a.page_bytes = (bytes + kPage - 1) / kPage * kPage;
  if (m.end - m.next < a.page_bytes + kPage) {
    fail("cudaMalloc: the addresses for device memory are used up: freed ones are never reused");
  }
  a.number = static_cast<int>(m.allocations.size()) + 1;
  a.pages = m.next;
  a.start = a.pages + (a.page_bytes - bytes) / kAlignment * kAlignment;
  a.bytes = bytes;
  m.next += a.page_bytes + kPage;  // and a guard page
  a.parts.resize((a.page_bytes + kPart - 1) / kPart);
  protect(a, 0, a.parts.size(), kWritable);
  std::memset(reinterpret_cast<void*>(a.start), kFill, a.bytes);
  fill_pad(a.pages, a.start);
  fill_pad(a.end(), a.pages + a.page_bytes);
  protect(a, 0, a.parts.size(), kClosed);
  m.live_bytes += bytes;
  ++m.live;
  return reinterpret_cast<void*>(m.allocations.emplace_back(std::move(a)).start);
}

void free_device(void* pointer) {
  Memory& m = memory();
  Allocation* a = find_allocation(pointer);
  if (a == nullptr) fail("cudaFree: %p is not device memory", pointer);
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(pointer) - a->start;
  if (!a->live) {
    fail("cudaFree: allocation #%d (%zu bytes) was freed before", a->number, a->bytes);
  }
  if (offset != 0) {
    fail("cudaFree: got offset %zu of allocation #%d (%zu bytes), expected its start", offset,
         a->number, a->bytes);
  }
  a->live = false;
  m.live_bytes -= a->bytes;
  --m.live;
  protect(*a, 0, a->parts.size(), kClosed);
  madvise(reinterpret_cast<void*>(a->pages), a->page_bytes, MADV_DONTNEED);
}

bool is_device(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  return address >= memory().begin && address < memory().end;
}

Allocation* find_allocation(const void* pointer) {
  if (!is_device(pointer) || memory().allocations.empty()) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  Allocation& a = nearest(address);
  return address >= a.start && address < a.end() ? &a : nullptr;
}

void require_device(const void* pointer, std::size_t bytes, const char* what) {
  const Allocation* a = find_allocation(pointer);
  if (a == nullptr) fail("%s: %p is not device memory", what, pointer);
  if (!a->live) fail("%s: use after free of allocation #%d (%zu bytes)", what, a->number, a->bytes);
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(pointer) - a->start;
  if (bytes > a->bytes - offset) {
    fail("%s: needs %zu bytes at offset %zu of allocation #%d, which has %zu", what, bytes, offset,
         a->number, a->bytes);
  }
}

void enter_device(const char* operation) {
  use_signal_stack();
  current_operation = operation;
}

void leave_device() { current_operation = nullptr; }

const std::vector<Allocation*>& touched() { return memory().touched; }

void close_touched() {
  for (Allocation* a : memory().touched) {
    if (a->written) check_pads(*a);
    protect(*a, a->open_begin, a->open_end, kClosed);
    std::fill(a->parts.begin() + static_cast<std::ptrdiff_t>(a->open_begin),
              a->parts.begin() + static_cast<std::ptrdiff_t>(a->open_end), kClosed);
    a->open_parts = a->open_begin = a->open_end = 0;
    a->written = false;
  }
  memory().touched.clear();
}

void open_writable(bool writable) { memory().open_writable = writable; }

void fail_allocation(std::int64_t n) { memory().fail_in = n; }
std::int64_t allocations() { return static_cast<std::int64_t>(memory().allocations.size()); }
std::int64_t live_allocations() { return memory().live; }
std::size_t live_bytes() { return memory().live_bytes; }

}  // namespace sim
