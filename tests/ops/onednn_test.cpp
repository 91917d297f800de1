// oneDNN's products need scratch and room for their code; too little of either is an error.
#include "runtime/cpu/onednn.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <vector>

#include "ops/ops.h"
#include "tests/runtime/errors.h"

namespace duet::test {
namespace {

// oneDNN's code generator does not survive a refused allocation, so a product asks first.
TEST(Onednn, CodeWithoutRoomIsAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Tensor a = Tensor::full({37, 53}, 1.0, DType::f32);
  const Tensor b = Tensor::full({53, 41}, 2.0, DType::f32);
  Tensor c = Tensor::empty({37, 41}, DType::f32);
  matmul(a, b.slice_view(1, 0, 40));  // what the library and the threads take once
  const auto in_child = [&] {
    std::ifstream statm("/proc/self/statm");
    std::uint64_t pages = 0;
    statm >> pages;
    const rlim_t now = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const rlimit limit{now + (1 << 20), now + (1 << 20)};
    setrlimit(RLIMIT_AS, &limit);
    std::vector<std::byte> scratch(gemm_scratch_bytes(a.view(), b.view(), c.mutable_view()));
    try {
      gemm(a.view(), b.view(), c.mutable_view(), {.scratch = scratch});
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      _exit(error.kind() == ErrorKind::memory ? 7 : 8);
    }
    _exit(9);
  };
  EXPECT_EXIT(in_child(), testing::ExitedWithCode(7),
              "no memory for the code that oneDNN generates");
}

// So does the description of a product, which a plan asks for.
TEST(Onednn, ADescriptionWithoutRoomIsAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Tensor a = Tensor::full({37, 53}, 1.0, DType::f32);
  matmul(a, a.transpose_view(0, 1));
  const auto in_child = [&] {
    std::ifstream statm("/proc/self/statm");
    std::uint64_t pages = 0;
    statm >> pages;
    const rlim_t now = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const rlimit limit{now + (128 << 10), now + (128 << 10)};
    setrlimit(RLIMIT_AS, &limit);
    try {
      for (std::int64_t n = 1; n < 2000; ++n) {  // until malloc has nothing left
        const Tensor b = Tensor::empty({53, n}, DType::f32, kMeta);
        Tensor c = Tensor::empty({37, n}, DType::f32, kMeta);
        gemm_scratch_bytes(a.view(), b.view(), c.mutable_view());
      }
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      _exit(error.kind() == ErrorKind::memory ? 7 : 8);
    }
    _exit(9);
  };
  EXPECT_EXIT(in_child(), testing::ExitedWithCode(7), "no memory for oneDNN's description");
}

TEST(Onednn, TooLittleScratchIsAnError) {
  const Tensor a = Tensor::full({8, 8}, 1.0, DType::f32);
  Tensor c = Tensor::empty({8, 8}, DType::f32);
  const std::size_t wanted = gemm_scratch_bytes(a.view(), a.view(), c.mutable_view());
  std::vector<std::byte> scratch(wanted);
  gemm(a.view(), a.view(), c.mutable_view(), {.scratch = scratch});
  if (wanted == 0) return;
  scratch.pop_back();
  const auto run = [&] { gemm(a.view(), a.view(), c.mutable_view(), {.scratch = scratch}); };
  EXPECT_NE(error_of(ErrorKind::internal, run).find("too little scratch"), std::string::npos);
}

}  // namespace
}  // namespace duet::test
