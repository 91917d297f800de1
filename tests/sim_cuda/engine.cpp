// The engine: blocks one after another, the threads of a block on fibers. A fiber that has run its
// thread to the end goes on with one that never ran, so a kernel without barriers needs one fiber;
// a thread that has to wait keeps its fiber, and the next one starts on another.
#include "tests/sim_cuda/engine.h"

#include <cstring>
#include <vector>

#include "tests/sim_cuda/barrier.h"
#include "tests/sim_cuda/faults.h"
#include "tests/sim_cuda/schedule.h"
#include "tests/sim_cuda/shared_memory.h"
#include "tests/sim_cuda/thread.h"

namespace sim {

Options options;
Thread* current = nullptr;
uint3 block_index{};
dim3 block_size;
dim3 grid_size;
std::uint64_t block_serial = 0;
void* tsan_engine = nullptr;

namespace {

struct Running {
  const char* kernel = nullptr;
  const std::function<void()>* body = nullptr;
  bool in_block = false;
} running;

std::vector<Thread> threads;
std::vector<Warp> warps;
Schedule schedule;
unsigned alive = 0;  // threads of the block that have not left the kernel

struct Barrier {
  unsigned waiting = 0;
  unsigned votes = 0;
  const Thread* first = nullptr;  // that arrived
  Arrivals last{};                // of the barrier that opened last
  unsigned opened = 0;
  long tokens[2] = {};
} barrier;
long start_token = 0;  // ThreadSanitizer: the engine's work before a block, seen by its threads
long end_token = 0;    // and the other way round

Fiber main_fiber;  // of run_grid's caller
Fiber* running_fiber = &main_fiber;
std::vector<Fiber*> idle_fibers;
std::vector<Fiber*> fibers_by_thread;  // under ThreadSanitizer, for which a stack has one owner

void run_threads();

Fiber* fiber_to_start() {
  if constexpr (kTsan) {
    Fiber*& fiber = fibers_by_thread[schedule.next_unstarted()];
    if (!fiber) fiber = new_fiber(options.stack_bytes, run_threads);
    return fiber;
  }
  if (idle_fibers.empty()) return new_fiber(options.stack_bytes, run_threads);
  Fiber* fiber = idle_fibers.back();
  idle_fibers.pop_back();
  return fiber;
}

// Whose turn it is: a thread that may go on, one that never ran, or run_grid again if nobody can.
Fiber* next_fiber() {
  if (schedule.ready_first()) return schedule.take_ready().fiber;
  return schedule.any_unstarted() ? fiber_to_start() : &main_fiber;
}

SIM_NO_TSAN void go_to(Fiber* next) {
  Fiber* own = running_fiber;
  if (next == own) return;
  running_fiber = next;
  switch_fiber(*own, *next);
}

void open_barrier() {
  barrier.last = {barrier.waiting, barrier.votes};
  barrier.waiting = 0;
  barrier.votes = 0;
  barrier.first = nullptr;
  ++barrier.opened;
  for (Thread& thread : threads) {
    if (thread.state == State::at_barrier) make_ready(thread);
  }
}

void start(Thread& thread) {
  schedule.start();
  thread.state = State::running;
  thread.fiber = running_fiber;
  current = &thread;
}

void finish(Thread& thread) {
  if (thread.pending_copies != 0) {
    fail("leaves the kernel before it waited for %u of its asynchronous copies",
         thread.pending_copies);
  }
  thread.state = State::finished;
  Warp& warp = *thread.warp;
  warp.alive &= ~(1U << thread.lane);
  for (const Meeting& meeting : warp.meetings) {
    if ((meeting.mask >> thread.lane & 1) != 0) {
      fail("lane %u leaves the kernel, but the mask %08x of a warp operation names it, at %s:%d",
           thread.lane, meeting.mask, meeting.place.file, meeting.place.line);
    }
  }
  --alive;
  if (barrier.waiting != 0 && barrier.waiting == alive) open_barrier();
  current = nullptr;
}

// What every fiber runs for ever.
void run_threads() {
  arrived();
  for (;;) {
    while (schedule.any_unstarted()) {
      Thread& thread = threads[schedule.next_unstarted()];
      start(thread);
      leave_engine(thread);
      tsan_acquire(&start_token);
      (*running.body)();
      tsan_release(&end_token);
      enter_engine();
      finish(thread);
      if (kTsan || schedule.give_way()) break;
    }
    if constexpr (!kTsan) idle_fibers.push_back(running_fiber);
    go_to(next_fiber());
  }
}

const char* words(State state) {
  return state == State::at_barrier ? "in __syncthreads" : "in a warp operation";
}

// Nobody can go on although threads wait: names two that wait for different things, if there are.
[[noreturn]] void fail_deadlock() {
  const Thread* first = nullptr;
  const Thread* other = nullptr;
  for (const Thread& thread : threads) {
    if (thread.state == State::finished) continue;
    if (!first) first = &thread;
    if (!other && (thread.state != first->state || !(thread.place == first->place)))
      other = &thread;
  }
  if (!other) {
    fail("deadlock: %u threads wait for ever, thread %u %s at %s:%d", alive, first->number,
         words(first->state), first->place.file, first->place.line);
  }
  fail("deadlock: %u threads wait for ever, thread %u %s at %s:%d, thread %u %s at %s:%d", alive,
       first->number, words(first->state), first->place.file, first->place.line, other->number,
       words(other->state), other->place.file, other->place.line);
}

// What is the same for all blocks of a launch.
void lay_out_threads(dim3 block) {
  const unsigned count = block.x * block.y * block.z;
  threads.assign(count, Thread{});
  warps.assign((count + kWarpLanes - 1) / kWarpLanes, Warp{});
  for (unsigned i = 0; i < count; ++i) {
    Thread& thread = threads[i];
    thread.index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
    thread.number = i;
    thread.lane = i % kWarpLanes;
    thread.warp = &warps[i / kWarpLanes];
    thread.warp->lanes[thread.lane] = &thread;
    thread.warp->existing |= 1U << thread.lane;
  }
  if constexpr (kTsan) {
    static std::vector<void*> contexts;
    if (!tsan_engine) tsan_engine = __tsan_get_current_fiber();
    while (contexts.size() < count) contexts.push_back(__tsan_create_fiber(0));
    for (Thread& thread : threads) thread.tsan = contexts[thread.number];
    if (fibers_by_thread.size() < count) fibers_by_thread.resize(count);
  }
}

void run_block() {
  for (Thread& thread : threads) thread.state = State::unstarted;
  for (Warp& warp : warps) {
    warp.alive = warp.existing;
    warp.meetings.clear();
  }
  alive = static_cast<unsigned>(threads.size());
  barrier.waiting = 0;
  barrier.votes = 0;
  barrier.first = nullptr;
  ++block_serial;
  schedule.begin_block();
  begin_shared_block();
  running.in_block = true;
  tsan_release(&start_token);
  go_to(next_fiber());
  tsan_acquire(&end_token);
  current = nullptr;
  if (alive != 0) fail_deadlock();
  end_shared_block();
  running.in_block = false;
}

}  // namespace

void wait_for_turn(Thread& thread) {
  go_to(next_fiber());
  current = &thread;
}

void make_ready(Thread& thread) {
  thread.state = State::running;
  schedule.add_ready(thread);
}

const char* kernel_name() { return running.kernel; }
bool in_kernel() { return running.kernel != nullptr; }
bool in_block() { return running.in_block; }

SIM_NO_TSAN Arrivals sync_threads(bool vote, Place place) {
  Thread& thread = current_thread();
  void* token = &barrier.tokens[barrier.opened % 2];
  tsan_release(token);
  enter_engine();
  if (!barrier.first) barrier.first = &thread;
  const Thread& first = *barrier.first;
  if (&first != &thread && !(first.place == place)) {
    fail("divergent __syncthreads: this thread is at %s:%d, thread %u at %s:%d", place.file,
         place.line, first.number, first.place.file, first.place.line);
  }
  thread.place = place;
  thread.state = State::at_barrier;
  barrier.votes += vote ? 1 : 0;
  if (++barrier.waiting == alive) open_barrier();
  wait_for_turn(thread);
  const Arrivals result = barrier.last;
  leave_engine(thread);
  tsan_acquire(token);
  return result;
}

void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& body,
              const char* kernel) {
  if (in_kernel()) fail("a kernel launches %s: kernels launch none", kernel);
  check_launch(grid, block, shared_bytes, kernel);
  install_fault_handler();
  running = {kernel, &body, false};
  block_size = block;
  grid_size = grid;
  lay_out_threads(block);
  begin_shared_grid(shared_bytes);
  const std::size_t blocks = std::size_t{grid.x} * grid.y * grid.z;
  schedule.begin_grid(blocks, static_cast<unsigned>(threads.size()));
  for (std::size_t turn = 0; turn < blocks; ++turn) {
    const std::size_t i = schedule.block(turn);
    block_index = {static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                   static_cast<unsigned>(i / grid.x / grid.y)};
    run_block();
  }
  running = {};
}

}  // namespace sim
