// The warp's matrix instructions and asynchronous copies: products of whole numbers come out
// exactly, and planted bugs show.
#include <gtest/gtest.h>

#include <vector>

#include "tests/sim_cuda/matrix_kernels.h"
#include "tests/sim_cuda/sanitizers.h"

namespace sim {
namespace {

constexpr int kK = 48;

std::vector<float> whole_numbers(std::size_t n, std::size_t step) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i * step % 17) - 8.0F;
  return values;
}

std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> c(16 * 8);
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t k = 0; k < kK; ++k) {
      for (std::size_t column = 0; column < 8; ++column) {
        c[row * 8 + column] += a[row * kK + k] * b[k * 8 + column];
      }
    }
  }
  return c;
}

bool tiles_are_right(TileBug bug, bool by_rows) {
  const std::vector<float> a = whole_numbers(16 * kK, 5);
  const std::vector<float> b = whole_numbers(kK * 8, 7);
  return tile_matmul(a, b, kK, by_rows, bug) == product(a, b);
}

class SimCudaMatrix : public testing::TestWithParam<Order> {
 protected:
  void SetUp() override { options = {.order = GetParam(), .seed = 5}; }
  void TearDown() override { options = {}; }
};

INSTANTIATE_TEST_SUITE_P(Orders, SimCudaMatrix,
                         testing::Values(Order::forward, Order::reverse, Order::random));

TEST_P(SimCudaMatrix, ProductsAreRight) {
  EXPECT_TRUE(tiles_are_right(TileBug::none, false));
  EXPECT_TRUE(tiles_are_right(TileBug::none, true));
}

TEST_P(SimCudaMatrix, FindsCopiesReadTooEarly) {
  if (kTsan) GTEST_SKIP() << "ThreadSanitizer ends the process for these races";
  EXPECT_FALSE(tiles_are_right(TileBug::waits_too_little, false));
  EXPECT_FALSE(tiles_are_right(TileBug::no_wait, true));
}

TEST_P(SimCudaMatrix, FindsMisuse) {
  EXPECT_EXIT(tiles_are_right(TileBug::never_waited_for, false),
              testing::ExitedWithCode(kExitStatus),
              "leaves the kernel before it waited for [12] of its asynchronous copies");
  EXPECT_EXIT(tiles_are_right(TileBug::misaligned_row, false), testing::ExitedWithCode(kExitStatus),
              "ldmatrix of a row at .*: expected 16 bytes of shared memory, aligned to 16");
  EXPECT_EXIT(tiles_are_right(TileBug::half_warp, false), testing::ExitedWithCode(kExitStatus),
              "deadlock|divergent");
}

}  // namespace
}  // namespace sim
