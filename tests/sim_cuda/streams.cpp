// Streams and events: when operations run, and what orders them.
#include "tests/sim_cuda/streams.h"

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/sim_cuda/engine.h"
#include "tests/sim_cuda/hazards.h"
#include "tests/sim_cuda/memory.h"
#include "tests/sim_cuda/runtime.h"

namespace sim {

namespace {

struct Stream;

// One recording of an event.
struct Record {
  Stream* stream = nullptr;
  bool done = false;
  Clock clock;  // of the stream, when the event was reached
  std::chrono::steady_clock::time_point time;
};

struct Event {
  int number = 0;
  bool timing = true;
  std::shared_ptr<Record> last;  // nullptr: never recorded
};

struct Operation {
  const char* what = "";
  std::function<void()> run;
  std::shared_ptr<Record> waits;      // may run once this is done
  std::shared_ptr<Record> records;    // is done by this
  std::shared_ptr<const Clock> host;  // what the host knew when it queued the operation
};

struct Stream {
  int number = 0;        // 0: the legacy default stream
  bool blocking = true;  // ordered with the default stream
  bool destroyed = false;
  std::uint64_t queued = 0;             // operations, ever
  std::uint64_t joined_default = 0;     // `queued` of the default stream when last ordered with it
  std::uint64_t joined_by_default = 0;  // own `queued` when the default stream last waited for it
  std::deque<Operation> queue;
  Clock clock;
};

struct Runtime {
  std::deque<Stream> streams = std::deque<Stream>(1);
  std::unordered_map<cudaStream_t, Stream*> stream_of_handle;
  std::deque<Event> events;
  std::unordered_map<cudaEvent_t, Event*> event_of_handle;
  std::shared_ptr<const Clock> host = std::make_shared<Clock>();
  std::mt19937 random;
  std::optional<unsigned> seed;  // of `random`
  Stream* only_user = nullptr;   // the one stream that has had operations, if it is one
  bool many_users = false;
  bool running = false;
  std::int64_t operations = 0;
};

Runtime& runtime() {
  static Runtime& r = *std::make_unique<Runtime>().release();  // outlives static destructors
  return r;
}

std::uint64_t random_number() {
  Runtime& r = runtime();
  if (r.seed != runtime_options().seed) {
    r.seed = runtime_options().seed;
    r.random.seed(*r.seed);
  }
  return r.random();
}

Stream& checked(cudaStream_t handle) {
  Runtime& r = runtime();
  if (handle == nullptr || handle == cudaStreamLegacy) return r.streams.front();
  if (handle == cudaStreamPerThread) fail("cudaStreamPerThread is not simulated");
  const auto found = r.stream_of_handle.find(handle);
  if (found == r.stream_of_handle.end()) fail("%p is not a stream", static_cast<void*>(handle));
  if (found->second->destroyed)
    fail("use of stream %d after its destruction", found->second->number);
  return *found->second;
}

Event& checked(cudaEvent_t handle) {
  const auto found = runtime().event_of_handle.find(handle);
  if (found == runtime().event_of_handle.end()) {
    fail("%p is not an event, or was destroyed", static_cast<void*>(handle));
  }
  return *found->second;
}

// Touches are told apart by operation where that can matter. While one stream does all the work
// lazily, everything is ordered, and what has run is known to the host: memory then stays open from
// one operation to the next, which saves two faults and system calls per allocation and operation.
bool tracks_touches() {
  return runtime().many_users || runtime_options().schedule != Schedule::lazy;
}

void note_touches(const Stream& stream, const char* what, std::uint64_t time) {
  for (Allocation* a : touched()) {
    a->history.note(a->number, a->written, {stream.number, time, what}, stream.clock);
  }
}

void execute(Stream& stream) {
  Runtime& r = runtime();
  const Operation op = std::move(stream.queue.front());
  stream.queue.pop_front();
  stream.clock.join(*op.host);
  const std::uint64_t time = stream.clock.tick(stream.number);
  if (op.waits != nullptr) stream.clock.join(op.waits->clock);
  if (op.records != nullptr) {
    op.records->done = true;
    op.records->clock = stream.clock;
    op.records->time = std::chrono::steady_clock::now();
  }
  if (!op.run) return;
  ++r.operations;
  const bool tracked = tracks_touches();
  open_writable(!tracked);
  enter_device(op.what);
  op.run();
  if (tracked) {
    note_touches(stream, op.what, time);
    close_touched();
  }
  leave_device();
}

bool can_run(const Stream& stream) {
  return !stream.queue.empty() &&
         (stream.queue.front().waits == nullptr || stream.queue.front().waits->done);
}

// The stream that must advance next so that `stream` can; nullptr where none can run at all.
Stream* needed_for(Stream* stream) {
  for (std::size_t steps = 0; steps <= runtime().streams.size(); ++steps) {
    if (can_run(*stream)) return stream;
    if (stream->queue.empty()) return nullptr;
    stream = stream->queue.front().waits->stream;
  }
  return nullptr;
}

Stream* random_runnable() {
  std::vector<Stream*> all;
  for (Stream& s : runtime().streams) {
    if (can_run(s)) all.push_back(&s);
  }
  return all.empty() ? nullptr : all[random_number() % all.size()];
}

// Runs operations until `done`; lazily only such as `wanted` needs. Host code goes on after it, so
// device memory closes at the end.
template <class Done>
void drain(Stream& wanted, const Done& done) {
  Runtime& r = runtime();
  if (r.running) fail("a CUDA call from inside an operation of a stream");
  r.running = true;
  while (!done()) {
    const bool random = runtime_options().schedule == Schedule::random;
    Stream* next = random ? random_runnable() : needed_for(&wanted);
    if (next == nullptr) fail("deadlock: stream %d waits for what never happens", wanted.number);
    execute(*next);
  }
  close_touched();
  r.running = false;
}

void host_learns(const Clock& clock) {
  auto now = std::make_shared<Clock>(*runtime().host);
  now->join(clock);
  runtime().host = std::move(now);
}

void synchronize(Stream& stream) {
  drain(stream, [&] { return stream.queue.empty(); });
  host_learns(stream.clock);
}

void push(Stream& stream, Operation op) {
  Runtime& r = runtime();
  if (r.only_user == nullptr) r.only_user = &stream;
  r.many_users = r.many_users || r.only_user != &stream;
  op.host = r.host;
  stream.queue.push_back(std::move(op));
  ++stream.queued;
}

std::shared_ptr<Record> push_record(Stream& stream) {
  auto record = std::make_shared<Record>();
  record->stream = &stream;
  push(stream, {.what = "event record", .run = {}, .waits = {}, .records = record, .host = {}});
  return record;
}

void push_wait(Stream& stream, std::shared_ptr<Record> record) {
  push(stream,
       {.what = "event wait", .run = {}, .waits = std::move(record), .records = {}, .host = {}});
}

// The legacy default stream waits for all work queued before on blocking streams, and they for its.
void order_with_default(Stream& stream) {
  Stream& standard = runtime().streams.front();
  if (&stream != &standard) {
    if (!stream.blocking || stream.joined_default == standard.queued) return;
    push_wait(stream, push_record(standard));
    stream.joined_default = standard.queued;
    return;
  }
  for (Stream& other : runtime().streams) {
    if (&other == &standard || !other.blocking || other.joined_by_default == other.queued) continue;
    push_wait(standard, push_record(other));
    other.joined_by_default = other.queued;
  }
}

// After the host has queued something.
void maybe_run(Stream& stream) {
  if (runtime_options().schedule == Schedule::eager) {
    drain(stream, [&] { return stream.queue.empty(); });
  } else if (runtime_options().schedule == Schedule::random) {
    std::uint64_t steps = random_number() % 3;
    drain(stream, [&] { return steps-- == 0 || random_runnable() == nullptr; });
  }
}

}  // namespace

std::recursive_mutex& api_mutex() {
  static std::recursive_mutex& mutex = *std::make_unique<std::recursive_mutex>().release();
  return mutex;
}

void enqueue(cudaStream_t handle, const char* what, std::function<void()> run) {
  Stream& stream = checked(handle);
  order_with_default(stream);
  push(stream, {.what = what, .run = std::move(run), .waits = {}, .records = {}, .host = {}});
  maybe_run(stream);
}

void synchronize(cudaStream_t handle) { synchronize(checked(handle)); }

void synchronize_all() {
  for (Stream& stream : runtime().streams) synchronize(stream);
}

bool poll(cudaStream_t handle) {
  Stream& stream = checked(handle);
  if (!stream.queue.empty()) {
    bool ran = false;
    drain(stream, [&] { return std::exchange(ran, true); });
  }
  if (!stream.queue.empty()) return false;
  host_learns(stream.clock);
  return true;
}

cudaStream_t create_stream(unsigned flags) {
  Runtime& r = runtime();
  Stream& stream = r.streams.emplace_back();
  stream.number = static_cast<int>(r.streams.size()) - 1;
  stream.blocking = (flags & cudaStreamNonBlocking) == 0;
  const auto handle = reinterpret_cast<cudaStream_t>(&stream);
  r.stream_of_handle.emplace(handle, &stream);
  return handle;
}

void destroy_stream(cudaStream_t handle) { checked(handle).destroyed = true; }

cudaEvent_t create_event(unsigned flags) {
  Runtime& r = runtime();
  Event& event = r.events.emplace_back();
  event.number = static_cast<int>(r.events.size());
  event.timing = (flags & cudaEventDisableTiming) == 0;
  const auto handle = reinterpret_cast<cudaEvent_t>(&event);
  r.event_of_handle.emplace(handle, &event);
  return handle;
}

void destroy_event(cudaEvent_t handle) {
  checked(handle);
  runtime().event_of_handle.erase(handle);
}

void record_event(cudaEvent_t handle, cudaStream_t stream_handle) {
  Event& event = checked(handle);
  Stream& stream = checked(stream_handle);
  order_with_default(stream);
  event.last = push_record(stream);
  maybe_run(stream);
}

void wait_event(cudaStream_t stream_handle, cudaEvent_t handle) {
  const Event& event = checked(handle);
  Stream& stream = checked(stream_handle);
  if (event.last == nullptr) {
    fail("cudaStreamWaitEvent: event %d was never recorded: stream %d would wait for nobody",
         event.number, stream.number);
  }
  push_wait(stream, event.last);
  maybe_run(stream);
}

void synchronize_event(cudaEvent_t handle) {
  const std::shared_ptr<Record> record = checked(handle).last;
  if (record == nullptr) {
    fail("cudaEventSynchronize: event %d was never recorded", checked(handle).number);
  }
  drain(*record->stream, [&] { return record->done; });
  host_learns(record->clock);
}

bool poll_event(cudaEvent_t handle) {
  const std::shared_ptr<Record> record = checked(handle).last;
  if (record == nullptr) return true;  // as CUDA has it
  bool ran = false;
  drain(*record->stream, [&] { return record->done || std::exchange(ran, true); });
  if (record->done) host_learns(record->clock);
  return record->done;
}

cudaError_t elapsed_ms(float* ms, cudaEvent_t start, cudaEvent_t end) {
  const Event& first = checked(start);
  const Event& last = checked(end);
  if (!first.timing || !last.timing || first.last == nullptr || last.last == nullptr) {
    return cudaErrorInvalidResourceHandle;
  }
  if (!first.last->done || !last.last->done) return cudaErrorNotReady;
  *ms = std::chrono::duration<float, std::milli>(last.last->time - first.last->time).count();
  return cudaSuccess;
}

std::int64_t operations() { return runtime().operations; }

}  // namespace sim
