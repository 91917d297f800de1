// Loops over the threads: what is thrown inside reaches the caller, and nothing else happens.
#include "runtime/cpu/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <stdexcept>
#include <string>

namespace duet::test {
namespace {

class Threads {
 public:
  explicit Threads(int n) : before_(num_threads()) { set_num_threads(n); }
  ~Threads() { set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

TEST(Parallel, AnExceptionReachesTheCaller) {
  for (const int n : {1, 2, 4}) {
    const Threads threads(n);
    EXPECT_THROW(parallel_chunks(64,
                                 [](std::int64_t i) {
                                   if (i % 7 == 3) throw std::bad_alloc();
                                 }),
                 std::bad_alloc);
    try {
      parallel_for(1000, 10, [](std::int64_t begin, std::int64_t) {
        throw std::runtime_error(std::to_string(begin));
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_EQ(std::stoi(e.what()) % 10, 0);
    }
    // The next loop runs as though nothing had been.
    std::atomic<std::int64_t> sum = 0;
    parallel_for(1000, 10, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
    EXPECT_EQ(sum.load(), 1000);
  }
}

TEST(Parallel, AnExceptionOfALoopInsideALoopDoesToo) {
  const Threads threads(2);
  std::atomic<int> inner = 0;
  EXPECT_THROW(parallel_chunks(4,
                               [&](std::int64_t) {
                                 parallel_chunks(4, [&](std::int64_t) {
                                   ++inner;
                                   throw std::bad_alloc();
                                 });
                               }),
               std::bad_alloc);
  EXPECT_GE(inner.load(), 1);
}

}  // namespace
}  // namespace duet::test
