// OpenMP gives what its variables, limits and the system allow, whatever is asked of it: the count
// that a run shows is the one that it runs with, to the last bit, or the command says why not.
#include <sched.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "tests/tools/process.h"

namespace duet::test {
namespace {

ProcessOptions with(std::vector<std::string> environment, std::function<void()> child = nullptr) {
  ProcessOptions options;
  options.environment = std::move(environment);
  options.child = std::move(child);
  return options;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The count that a run shows, and its losses and gradients as the log spells them.
struct Shown {
  int threads = 0;
  std::vector<std::string> numbers;
};

class ThreadsTest : public CommandTest {
 protected:
  // Wide enough for oneDNN to split its products.
  static std::vector<std::string> short_run(const std::string& out_dir, int threads) {
    return training(
        out_dir, {"--max_iters", "2", "--n_layer", "1", "--n_embd", "64", "--block_size", "64",
                  "--batch_size", "8", "--eval_iters", "1", "--diagnostics", "0", "--log_interval",
                  "1", "--threads", std::to_string(threads)});
  }
  Shown shown(const std::string& out_dir) const {
    Shown out;
    const auto env = nlohmann::json::parse(read_all(directory_ / out_dir / "env.json"));
    out.threads = env.at("threads").get<int>();
    std::istringstream log(read_all(directory_ / out_dir / "metrics.jsonl"));
    for (std::string line; std::getline(log, line);) {
      const auto json = nlohmann::json::parse(line);
      for (const char* key : {"train/loss", "train/grad_norm", "val/loss"}) {
        if (json.contains(key)) out.numbers.push_back(json.at(key).dump());
      }
    }
    return out;
  }
  // A run with nothing in its way; made once for each count.
  const Shown& plain(int threads) {
    Shown& known = plain_[threads];
    if (known.threads == 0) {
      const std::string out_dir = "plain" + std::to_string(threads);
      const Ended ended = duet(short_run(out_dir, threads));
      EXPECT_EQ(ended.code, 0) << ended.err;
      known = shown(out_dir);
      EXPECT_EQ(known.threads, threads);
    }
    return known;
  }
  // "2" of doctor's line "threads    2 (CPU affinity 2, ...)"; what follows it in `why`.
  static int doctor_threads(const Ended& ended, std::string* why = nullptr) {
    const std::size_t at = ended.out.find("threads    ");
    EXPECT_EQ(ended.code, 0) << ended.err;
    if (at == std::string::npos) return -1;
    if (why != nullptr) *why = ended.out.substr(at, ended.out.find('\n', at) - at);
    return std::stoi(ended.out.substr(at + 11));
  }

 private:
  std::map<int, Shown> plain_;
};

struct Surroundings {
  const char* name;
  std::vector<std::string> environment;
  int threads = 2;  // of the two that the run asks for; 0: a refusal; -1: up to the machine
};

TEST_F(ThreadsTest, WhatTheBoxShowsIsWhatRuns) {
  const std::vector<Surroundings> table = {
      {"limit", {"OMP_THREAD_LIMIT=1"}, 1},
      {"limit of 2", {"OMP_THREAD_LIMIT=2"}},
      {"dynamic", {"OMP_DYNAMIC=true", "OMP_NUM_THREADS=8"}},
      {"no levels", {"OMP_MAX_ACTIVE_LEVELS=0"}},
      {"nested", {"OMP_NESTED=true", "OMP_MAX_ACTIVE_LEVELS=3", "OMP_NUM_THREADS=2,2,2"}},
      {"bound", {"OMP_PROC_BIND=spread", "OMP_PLACES=cores", "GOMP_SPINCOUNT=1"}},
      {"one place", {"OMP_PLACES={0}"}},
      {"no such place", {"OMP_PLACES={4095}"}},
      {"schedule", {"OMP_SCHEDULE=static,7", "OMP_CANCELLATION=true"}},
      {"one by the variable", {"OMP_NUM_THREADS=1"}},
      {"absurd count", {"OMP_NUM_THREADS=100000"}},
      {"no count", {"OMP_NUM_THREADS=2x"}},
      {"1 byte of stack, which OpenMP ignores", {"OMP_STACKSIZE=1B"}},
      {"little stack", {"OMP_STACKSIZE=16"}, 0},
      {"little stack by GNU's name", {"GOMP_STACKSIZE=20 k"}, 0},
      {"more stack than any address space", {"OMP_STACKSIZE=1000000000G"}, 0},
      {"much stack", {"OMP_STACKSIZE=100G"}, -1},
  };
  for (const Surroundings& around : table) {
    SCOPED_TRACE(around.name);
    const std::string out_dir = std::string("run ") + around.name;
    const Ended ended = duet(short_run(out_dir, 2), with(around.environment));
    if (around.threads == 0 || (around.threads < 0 && ended.code != 0)) {
      EXPECT_TRUE(ended.code == 2 || ended.code == 3) << ended.code << ended.err;
      EXPECT_TRUE(has(ended.err, "error: threads: ")) << ended.err;
      EXPECT_FALSE(fs::exists(directory_ / out_dir));
      continue;
    }
    ASSERT_EQ(ended.code, 0) << ended.err;
    const Shown run = shown(out_dir);
    EXPECT_EQ(run.threads, around.threads > 0 ? around.threads : 2);
    EXPECT_TRUE(has(ended.out, "| threads      " + std::to_string(run.threads) + " ("))
        << ended.out;
    EXPECT_EQ(run.numbers, plain(run.threads).numbers);
  }
}

TEST_F(ThreadsTest, OneProcessorRunsBothThreads) {
  const auto first_processor_only = [] {
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &all)) continue;
      CPU_SET(cpu, &one);
      break;
    }
    sched_setaffinity(0, sizeof one, &one);
  };
  const Ended ended = duet(short_run("run", 2), with({}, first_processor_only));
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(shown("run").numbers, plain(2).numbers);
  EXPECT_EQ(doctor_threads(duet({"doctor"}, with({}, first_processor_only))), 1);
}

TEST_F(ThreadsTest, BindingTheMainThreadHidesNoProcessor) {
  const int all = doctor_threads(duet({"doctor"}));
  // Without OMP_WAIT_POLICY the program starts itself again, bound as it is by then.
  const auto start_again = [] { unsetenv("OMP_WAIT_POLICY"); };
  for (const char* variable : {"OMP_PROC_BIND=true", "OMP_PROC_BIND=close", "OMP_PLACES=threads"}) {
    SCOPED_TRACE(variable);
    EXPECT_EQ(doctor_threads(duet({"doctor"}, with({variable}))), all);
    EXPECT_EQ(doctor_threads(duet({"doctor"}, with({variable}, start_again))), all);
  }
}

TEST_F(ThreadsTest, CommandsWithoutABoxSayWhatTheyGot) {
  ASSERT_EQ(duet(short_run("run", 1)).code, 0);
  const std::vector<std::string> eval = {"eval",     "--checkpoint", "run", "--data",
                                         "text.txt", "--threads",    "2"};
  const Ended limited = duet(eval, with({"OMP_THREAD_LIMIT=1"}));
  EXPECT_TRUE(has(limited.err, "note: threads: 1 (")) << limited.err;
  EXPECT_TRUE(has(limited.err, "2 asked for, OMP_THREAD_LIMIT")) << limited.err;
  std::vector<std::string> alone = eval;
  alone.back() = "1";
  EXPECT_EQ(limited.out, duet(alone).out);
  EXPECT_EQ(duet(eval).err, "");
}

TEST_F(ThreadsTest, CountsThatCannotBeHadAreRefused) {
  std::string why;
  const Ended absurd = duet({"doctor"}, with({"OMP_NUM_THREADS=100000"}));
  EXPECT_EQ(absurd.code, 2);
  EXPECT_EQ(absurd.err,
            "error: OMP_NUM_THREADS: too many threads: got 100000, expected 1 to 4096; unset it, "
            "or give --threads\n");
  EXPECT_EQ(doctor_threads(duet({"doctor"}, with({"OMP_NUM_THREADS= 3,2"})), &why), 3);
  EXPECT_TRUE(has(why, "OMP_NUM_THREADS")) << why;
  // Stacks of 4,000 threads do not fit into 4 GB of addresses. OpenMP would end the process.
  const auto little_room = [] {
    const rlimit limit{rlim_t{4} << 30, rlim_t{4} << 30};
    setrlimit(RLIMIT_AS, &limit);
  };
  const Ended many =
      duet({"doctor"}, with({"OMP_NUM_THREADS=4000", "OMP_STACKSIZE=8M"}, little_room));
  EXPECT_EQ(many.code, 3) << many.err;
  EXPECT_TRUE(has(many.err, "error: threads: no memory for their stacks of 8192 KiB: got "))
      << many.err;
}

}  // namespace
}  // namespace duet::test
