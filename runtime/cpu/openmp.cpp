#include "runtime/cpu/openmp.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/cpu/parallel.h"
#include "runtime/error.h"

namespace duet {
namespace {

// The deepest kernels, oneDNN's among them, take about 32 KiB.
constexpr std::size_t kLeastStack = 256 << 10;

int& wanted_by_last() {
  static int threads = 1;
  return threads;
}

// The processors of all places that OpenMP binds threads to, in order; empty where it binds none.
std::vector<int> bound_cpus() {
  std::vector<int> cpus;
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> ids(static_cast<std::size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, ids.data());
    cpus.insert(cpus.end(), ids.begin(), ids.end());
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

// A number and B, K, M or G; K where there is none. Nothing for a text that OpenMP ignores, or a
// stack below the system's least, which it ignores too.
std::optional<std::size_t> stack_size(const char* text) {
  if (text == nullptr) return std::nullopt;
  const auto skip_spaces = [&] {
    while (*text == ' ' || *text == '\t') ++text;
  };
  skip_spaces();
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), number);
  if (error != std::errc()) return std::nullopt;
  text = end;
  skip_spaces();
  constexpr std::string_view kUnits = "BbKkMmGg";
  std::size_t shift = 10;
  if (*text != '\0') {
    const std::size_t unit = kUnits.find(*text++);
    if (unit == std::string_view::npos) return std::nullopt;
    shift = unit / 2 * 10;
  }
  skip_spaces();
  if (*text != '\0' || number > (SIZE_MAX >> shift)) return std::nullopt;
  const std::size_t bytes = number << shift;
  return bytes < static_cast<std::size_t>(PTHREAD_STACK_MIN) ? std::nullopt : std::optional(bytes);
}

std::optional<std::size_t> chosen_stack() {
  for (const char* name : {"OMP_STACKSIZE", "GOMP_STACKSIZE"}) {
    if (const auto bytes = stack_size(std::getenv(name))) return bytes;
  }
  return std::nullopt;
}

// Starts that many threads at once and ends them again. OpenMP would end the process where one of
// its own cannot be started.
void check_startable(int threads) {
  const std::size_t stack = thread_stack_bytes();
  const char* const advice =
      chosen_stack() ? "unset OMP_STACKSIZE, or use fewer threads" : "use fewer threads";
  check(stack >= kLeastStack, ErrorKind::usage, "threads: their stacks are too small: got ",
        stack >> 10, " KiB, expected ", kLeastStack >> 10, " KiB or more; ",
        chosen_stack() ? "unset OMP_STACKSIZE" : "raise the limit (ulimit -s)");
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack);
  std::vector<pthread_t> started;
  started.reserve(static_cast<std::size_t>(threads));
  std::mutex gate;
  gate.lock();  // all of them wait until the last one is there
  int error = 0;
  while (error == 0 && std::ssize(started) < threads) {
    pthread_t thread{};
    error = pthread_create(
        &thread, &attributes,
        [](void* until) -> void* {
          const std::lock_guard wait(*static_cast<std::mutex*>(until));
          return nullptr;
        },
        &gate);
    if (error == 0) started.push_back(thread);
  }
  pthread_attr_destroy(&attributes);
  bool fits = true;
  if (error != 0) {
    void* const room =
        ::mmap(nullptr, stack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fits = room != MAP_FAILED;
    if (fits) ::munmap(room, stack);
  }
  gate.unlock();
  for (const pthread_t thread : started) pthread_join(thread, nullptr);
  check(fits, ErrorKind::memory, "threads: no memory for their stacks of ", stack >> 10,
        " KiB: got ", started.size() + 1, " of ", threads + 1, " threads, expected all; ", advice);
  check(error == 0, ErrorKind::usage, "threads: the system starts no more (", std::strerror(error),
        "): got ", started.size() + 1, " of ", threads + 1, " threads, expected all; ", advice);
}

}  // namespace

std::size_t thread_stack_bytes() {
  if (const auto chosen = chosen_stack()) return *chosen;
  std::size_t bytes = 0;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_getstacksize(&attributes, &bytes);
  pthread_attr_destroy(&attributes);
  return bytes;
}

int start_team(int wanted) {
  omp_set_dynamic(0);            // OMP_DYNAMIC: teams that shrink while the machine is busy
  omp_set_max_active_levels(1);  // OMP_MAX_ACTIVE_LEVELS=0: no region is parallel
  const int asked = std::min(wanted, omp_get_thread_limit());
  if (asked > 1) check_startable(asked - 1);
  omp_set_num_threads(asked);
  int team = 1;
#pragma omp parallel
  {
    if (omp_get_thread_num() == 0) team = omp_get_num_threads();
  }
  omp_set_num_threads(team);
  wanted_by_last() = wanted;
  return team;
}

int wanted_threads() { return wanted_by_last(); }

int affinity_cpus() {
  const std::vector<int> bound = bound_cpus();
  return bound.empty() ? std::max(omp_get_num_procs(), 1) : static_cast<int>(bound.size());
}

void unbind_thread() {
  const std::vector<int> cpus = bound_cpus();
  if (cpus.empty()) return;
  const auto count = static_cast<std::size_t>(cpus.back()) + 1;
  cpu_set_t* const set = CPU_ALLOC(count);
  if (set == nullptr) return;
  const std::size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set);
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set);
  sched_setaffinity(0, bytes, set);
  CPU_FREE(set);
}

}  // namespace duet
