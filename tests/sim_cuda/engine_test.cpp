// The simulator finds what it is there to find: right kernels give right results in every order of
// the threads, and every planted bug shows, as one line and exit status 42 or as a wrong result.
#include "tests/sim_cuda/engine.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <numeric>
#include <ostream>
#include <random>
#include <string>

#include "tests/sim_cuda/planted_kernels.h"
#include "tests/sim_cuda/sanitizers.h"

namespace sim {

// What GoogleTest prints.
void PrintTo(const Options& order, std::ostream* out) {
  *out << static_cast<int>(order.order) << ' ' << order.seed;
}

namespace {

std::vector<float> random_values(std::size_t n) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

// Every order a test of a kernel should run in.
class SimCuda : public testing::TestWithParam<Options> {
 protected:
  void SetUp() override { options = GetParam(); }
  void TearDown() override { options = {}; }
};

std::vector<Options> five_orders() {
  std::vector<Options> orders = {{.order = Order::forward}, {.order = Order::reverse}};
  for (unsigned seed = 1; seed <= 3; ++seed)
    orders.push_back({.order = Order::random, .seed = seed});
  return orders;
}

std::string name_of(const Options& order) {
  if (order.order == Order::random) return "random" + std::to_string(order.seed);
  return order.order == Order::forward ? "forward" : "reverse";
}

INSTANTIATE_TEST_SUITE_P(Orders, SimCuda, testing::ValuesIn(five_orders()),
                         [](const auto& test) { return name_of(test.param); });

// NaN counts as wrong.
template <class Expected>
bool all_near(const std::vector<float>& got, const std::vector<Expected>& expected) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!(std::abs(got[i] - expected[i]) <= 1e-4)) return false;
  }
  return got.size() == expected.size();
}

constexpr int kM = 37;
constexpr int kN = 50;
constexpr int kK = 45;

std::vector<double> matmul_of_random() {
  const std::vector<float> a = random_values(kM * kK);
  const std::vector<float> b = random_values(kK * kN);
  std::vector<double> c(kM * kN);
  for (std::size_t i = 0; i < kM; ++i) {
    for (std::size_t j = 0; j < kN; ++j) {
      for (std::size_t k = 0; k < kK; ++k) c[i * kN + j] += double{a[i * kK + k]} * b[k * kN + j];
    }
  }
  return c;
}
bool matmul_is_right(Bug bug) {
  return all_near(tiled_matmul(random_values(kM * kK), random_values(kK * kN), kM, kN, kK, bug),
                  matmul_of_random());
}

// Whole numbers: their sum is the same in every order.
bool block_sums_are_right(Bug bug) {
  std::vector<float> x(10007);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 13);
  const std::vector<float> sums = block_sums(x, 8, bug);
  return std::accumulate(sums.begin(), sums.end(), 0.0F) ==
         std::accumulate(x.begin(), x.end(), 0.0F);
}

constexpr int kRows = 9;

std::vector<float> softmax_of_random(Bug bug) {
  return softmax_rows(random_values(kRows * 64), kRows, bug);
}

TEST_P(SimCuda, VectorAddIsRight) {
  const std::vector<float> a = random_values(1003);
  std::vector<float> twice = a;
  for (float& value : twice) value *= 2;
  EXPECT_EQ(vector_add(a, a), twice);
}

TEST_P(SimCuda, BlockSumsAreRight) { EXPECT_TRUE(block_sums_are_right(Bug::none)); }

TEST_P(SimCuda, SoftmaxIsRight) {
  const std::vector<float> x = random_values(kRows * 64);
  std::vector<double> expected(x.begin(), x.end());
  for (std::size_t row = 0; row < kRows; ++row) {
    double sum = 0;
    for (std::size_t i = row * 64; i < row * 64 + 64; ++i) sum += std::exp(double{x[i]});
    for (std::size_t i = row * 64; i < row * 64 + 64; ++i)
      expected[i] = std::exp(double{x[i]}) / sum;
  }
  EXPECT_TRUE(all_near(softmax_of_random(Bug::none), expected));
}

TEST_P(SimCuda, TiledMatmulIsRight) { EXPECT_TRUE(matmul_is_right(Bug::none)); }

TEST_P(SimCuda, TransposeIsRight) {
  const std::vector<float> x = random_values(32 * 32);
  EXPECT_EQ(transpose(transpose(x)), x);
  EXPECT_EQ(transpose(x)[5], x[5 * 32]);
}

TEST_P(SimCuda, EveryThreadRunsOnce) {
  for (const int count : visits({3, 2, 2}, {5, 4, 3})) EXPECT_EQ(count, 1);
  EXPECT_EQ(visits({1, 65535, 1}, 1), std::vector<int>(65535, 1));
  EXPECT_EQ(visits(1, {16, 1, 64}), std::vector<int>(1024, 1));
}

TEST_P(SimCuda, AtomicFunctions) {
  EXPECT_EQ(atomics(), (std::vector<int>{4950, 99, 0, 4950, 1, 100, 50}));
}

TEST_P(SimCuda, VotesAndShuffles) {
  EXPECT_EQ(votes(), (std::vector<int>{5, 1, 0, 0b10010, 1, 1, 19, 22, 16}));
}

// A missing barrier shows as a wrong result in at least one of the orders. ThreadSanitizer reports
// it in each, when the process ends.
void expect_race(bool (*is_right)(Bug), Bug bug) {
  if (kTsan) {
    EXPECT_EXIT(
        {
          is_right(bug);
          std::exit(0);
        },
        testing::ExitedWithCode(66), "data race");
    return;
  }
  bool found = false;
  for (const Options& order : five_orders()) {
    options = order;
    found = !is_right(bug) || found;
  }
  options = {};
  EXPECT_TRUE(found);
}

TEST(SimCudaFinds, MissingBarriers) {
  expect_race(block_sums_are_right, Bug::no_barrier_before_use);
  expect_race(matmul_is_right, Bug::no_barrier_before_use);
  expect_race(matmul_is_right, Bug::no_barrier_after_use);
}

void expect_failure(const std::function<void()>& run, const char* words) {
  EXPECT_EXIT(run(), testing::ExitedWithCode(kExitStatus), words);
}

TEST_P(SimCuda, FindsUninitialisedSharedMemory) {
  EXPECT_FALSE(block_sums_are_right(Bug::uninitialised));
}

TEST_P(SimCuda, FindsDivergentBarriers) {
  expect_failure(
      [] { block_sums_are_right(Bug::divergent_barrier); },
      "kernel block_sums_kernel, block \\(.*,0,0\\), thread \\(.*,0,0\\): divergent "
      "__syncthreads: this thread is at .*planted_kernels.cu:[0-9]+, thread [0-9]+ at .*:");
  expect_failure([] { matmul_is_right(Bug::divergent_barrier); }, "divergent __syncthreads");
}

TEST_P(SimCuda, FindsOverruns) {
  // AddressSanitizer is first, with a status of its own.
  const auto found = [](int status) {
    return WIFEXITED(status) && WEXITSTATUS(status) == (kAsan ? 1 : kExitStatus);
  };
  const std::vector<float> x = random_values(32 * 32);
  EXPECT_EXIT(
      transpose(x, Bug::overrun), found,
      kAsan ? "use-after-poison"
            : "kernel transpose_kernel, block \\(0,0,0\\): shared memory overrun: a thread of "
              "this block wrote behind tile \\(4224 bytes, declared at "
              ".*planted_kernels.cu:[0-9]+\\), at byte 422");
  EXPECT_EXIT(matmul_is_right(Bug::overrun), found,
              kAsan ? "use-after-poison" : "wrote behind dynamic shared memory \\(516 bytes");
  expect_failure([] { matmul_is_right(Bug::far_overrun); },
                 "thread \\(.*,0,0\\): shared memory overrun: reads or writes byte 6[0-9][0-9] of "
                 "dynamic shared memory, launched with 512 bytes");
}

TEST_P(SimCuda, FindsWrongWarpOperations) {
  expect_failure([] { softmax_of_random(Bug::divergent_shuffle); },
                 "divergent warp operation: lane [0-9]+ is at .*:[0-9]+ with mask ffffffff, lane");
  expect_failure(
      [] { softmax_of_random(Bug::exited_lane); },
      "names lane [0-9]+, which has left the kernel|lane [0-9]+ leaves the kernel, but the "
      "mask ffffffff of a warp operation names it, at .*cu:[0-9]+");
  expect_failure([] { softmax_of_random(Bug::source_outside_mask); },
                 "lane 15 shuffles from lane 16, which is not in the mask 0000ffff");
  expect_failure([] { softmax_of_random(Bug::lane_outside_own_mask); },
                 "lane (1[6-9]|[23][0-9]) is not in the mask 0000ffff of its own");
  expect_failure(
      [] { softmax_of_random(Bug::barrier_against_shuffle); },
      "deadlock: [0-9]+ threads wait for ever, .* in a warp operation at .* in __syncthreads");
}

TEST(SimCudaFinds, KernelsThatAskForTooMuch) {
  expect_failure(too_much_static_memory,
                 "static shared memory: 52000 bytes with second at .*, at most 49152");
  expect_failure(dynamic_memory_of_0_bytes,
                 "uses dynamic shared memory, but was launched with 0 bytes of it, at .*cu:[0-9]+");
  if (!kAsan && !kTsan) expect_failure(full_stack, "the thread's stack of 131072 bytes is full");
}

TEST(SimCudaFinds, LaunchesThatAGpuRefuses) {
  expect_failure(
      [] { launch_empty(1, 1025, 0); },
      "^sim_cuda: kernel empty_kernel: more than 1024 threads in a block: launched with a "
      "grid of \\(1,1,1\\), a block of \\(1025,1,1\\), 0 bytes of dynamic shared memory");
  expect_failure([] { launch_empty(1, {32, 33, 1}, 0); }, "more than 1024 threads");
  expect_failure([] { launch_empty(1, {1, 1, 65}, 0); }, "deeper than 64");
  expect_failure([] { launch_empty(0, 32, 0); }, "a grid of 0 blocks");
  expect_failure([] { launch_empty(1, 0, 0); }, "a block of 0 threads");
  expect_failure([] { launch_empty(0x80000000U, 32, 0); }, "2147483647 blocks in x");
  expect_failure([] { launch_empty({1, 65536, 1}, 32, 0); }, "65535 blocks in y");
  expect_failure([] { launch_empty({1, 1, 65536}, 32, 0); }, "65535 blocks in z");
  expect_failure([] { launch_empty(1, 32, 227 * 1024 + 1); }, "227 KiB of dynamic shared memory");
  launch_empty(1, 1024, 227 * 1024);
}

}  // namespace
}  // namespace sim
