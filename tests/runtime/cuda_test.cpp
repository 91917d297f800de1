// CUDA in the runtime: what is said where it is missing; memory, transfers and counts where it is
// there: on a GPU, or in the simulator (DUET_CUDA=SIM).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "runtime/allocator.h"
#include "runtime/cuda_status.h"
#include "runtime/launch_count.h"
#include "runtime/live_limit.h"
#include "runtime/memory_ops.h"
#include "runtime/random.h"
#include "runtime/safetensors.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/gpu.h"
#include "tests/runtime/temp_directory.h"

namespace duet::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(CudaStatus, AdvisesWhatItsToolkitCanBuild) {
  EXPECT_EQ(build_advice(86, 13000), "build with -DCMAKE_CUDA_ARCHITECTURES=86");
  EXPECT_EQ(build_advice(75, 13020), "build with -DCMAKE_CUDA_ARCHITECTURES=75");
  EXPECT_EQ(build_advice(70, 12090), "build with -DCMAKE_CUDA_ARCHITECTURES=70");
  EXPECT_EQ(build_advice(70, 13000),
            "the GPU is too old for the toolkit of this build: CUDA 13 begins at sm_75; build with "
            "the toolkit of CUDA 12, which begins at sm_50");
  EXPECT_EQ(build_advice(37, 13000),
            "the GPU is too old for the toolkit of this build: CUDA 13 begins at sm_75, and no "
            "toolkit that knows C++20 compiles for it");
  EXPECT_EQ(build_advice(37, 12040),
            "the GPU is too old for the toolkit of this build: CUDA 12 begins at sm_50, and no "
            "toolkit that knows C++20 compiles for it");
  EXPECT_EQ(build_advice(90, 14000), "build with -DCMAKE_CUDA_ARCHITECTURES=90");
}

TEST(CudaStatus, KnowsWhichGpusABinaryIsFor) {
  EXPECT_TRUE(has_code_for({"80-real"}, 80));
  EXPECT_TRUE(has_code_for({"80-real"}, 89));
  EXPECT_FALSE(has_code_for({"80-real"}, 75));
  EXPECT_FALSE(has_code_for({"80-real"}, 90));
  EXPECT_FALSE(has_code_for({"86-real"}, 80));
  EXPECT_TRUE(has_code_for({"90a-real"}, 90));
  EXPECT_TRUE(has_code_for({"90a"}, 90));  // its PTX is for 9.0, too
  EXPECT_FALSE(has_code_for({"90a"}, 100));
  EXPECT_TRUE(has_code_for({"100f"}, 103));
  EXPECT_FALSE(has_code_for({"100f"}, 120));
  EXPECT_TRUE(has_code_for({"80"}, 120));  // PTX
  EXPECT_TRUE(has_code_for({"80-virtual"}, 90));
  EXPECT_FALSE(has_code_for({"120"}, 90));
  EXPECT_TRUE(has_code_for({"80-real", "90a-real", "120"}, 90));
  EXPECT_FALSE(has_code_for({"80-real", "90a-real", "120"}, 75));
  EXPECT_TRUE(has_code_for({"native"}, 90));
  EXPECT_FALSE(has_code_for({}, 90));
}

TEST(CudaStatus, TellsWhatIsMissing) {
  const CudaStatus& s = cuda_status();
  EXPECT_EQ(s.usable, s.reason.empty());
  if (s.usable) {
    require_cuda();
    EXPECT_TRUE(s.built);
    EXPECT_GE(s.devices, 1);
    EXPECT_GE(s.compute_capability, 75);
    EXPECT_GT(s.total_bytes, 0U);
    return;
  }
  expect_in(concat("cuda: ", s.reason, "; run with --device cpu"),
            error_of(ErrorKind::device, [] { require_cuda(); }));
  error_of(ErrorKind::device, [] { Tensor::empty({1}, DType::f32, kCuda); });
}

TEST(CudaStatus, OneGpuIsUsed) {
  expect_in("got cuda:1, expected cuda:0; choose another with CUDA_VISIBLE_DEVICES",
            error_of(ErrorKind::device, [] {
              Tensor::empty({1}, DType::f32, Device{DeviceType::cuda, 1});
            }));
}

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  }
};

Tensor numbers(const Shape& shape, DType dtype = DType::f32) {
  Tensor t = Tensor::empty(shape, dtype);
  fill_normal(t, {.seed = 7, .use = kUseTest}, 0, 1);
  return t;
}

void expect_same(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  const Tensor x = to_device(a, kCpu), y = to_device(b, kCpu);
  ASSERT_EQ(std::memcmp(x.view().data, y.view().data, x.nbytes()), 0);
}

TEST_F(Cuda, TensorsGoThereAndBack) {
  const Tensor x = numbers({3, 4});
  const Tensor there = to_device(x, kCuda);
  EXPECT_EQ(there.device(), kCuda);
  expect_same(there, x);
  expect_same(to_device(x.transpose_view(0, 1), kCuda), clone(x.transpose_view(0, 1)));
  EXPECT_EQ(to_device(there, kCuda).storage(), there.storage());  // it is there already
  const Tensor doubles = numbers({5}, DType::f64);
  expect_same(to_device(doubles, kCuda), doubles);
  EXPECT_EQ(to_device(numbers({0, 3}), kCuda).shape(), (Shape{0, 3}));
  EXPECT_EQ(to_device(there, kMeta).device(), kMeta);
  expect_in("which has no values", error_of(ErrorKind::device, [] {
              to_device(Tensor::empty({2}, DType::f32, kMeta), kCuda);
            }));
  error_of(ErrorKind::device, [&] { (void)there.data<float>(); });
}

TEST_F(Cuda, CopyCrossesDevices) {
  const Tensor x = numbers({3, 4});
  Tensor there = Tensor::empty({3, 4}, DType::f32, kCuda);
  const std::uint32_t version = there.version();
  copy(there, x);
  EXPECT_GT(there.version(), version);
  expect_same(there, x);
  Tensor wide = Tensor::empty({3, 4}, DType::f64);
  copy(wide, there);  // converted on the host
  EXPECT_EQ(wide.slice_view(0, 2, 3).slice_view(1, 1, 2).item(),
            x.slice_view(0, 2, 3).slice_view(1, 1, 2).item());
  error_of(ErrorKind::shape, [&] { copy(there, numbers({4, 3})); });
}

TEST_F(Cuda, ItemWaitsForTheGpu) {
  const Tensor x = numbers({2, 3});
  const Tensor there = to_device(x, kCuda);
  for (const std::int64_t i : {0, 1}) {
    for (const std::int64_t j : {0, 2}) {
      EXPECT_EQ(there.slice_view(0, i, i + 1).slice_view(1, j, j + 1).item(),
                x.slice_view(0, i, i + 1).slice_view(1, j, j + 1).item());
    }
  }
  synchronize(kCuda);
}

TEST_F(Cuda, RandomNumbersAreThoseOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    Tensor there = Tensor::empty({101}, dtype, kCuda);
    Tensor here = Tensor::empty({101}, dtype);
    fill_normal(there, {.seed = 3}, 1, 2);
    fill_normal(here, {.seed = 3}, 1, 2);
    expect_same(there, here);
    fill_uniform(there, {.seed = 4}, -1, 1);
    fill_uniform(here, {.seed = 4}, -1, 1);
    expect_same(there, here);
  }
}

TEST_F(Cuda, FilesAreWrittenAndReadThere) {
  const TempDirectory directory;
  const std::string path = directory.file("x.safetensors");
  const Tensor x = numbers({6, 5});
  write_safetensors(path, {{"x", to_device(x, kCuda)}});
  Tensor there = Tensor::empty({6, 5}, DType::f32, kCuda);
  SafetensorsFile::open(path).read_into("x", there);
  expect_same(there, x);
}

TEST_F(Cuda, MemoryIsCachedAndGivenBack) {
  Allocator& memory = allocator(kCuda);
  memory.empty_cache();
  const MemoryStats before = memory.stats();
  { const Tensor t = Tensor::empty({1 << 20}, DType::f32, kCuda); }
  EXPECT_EQ(memory.stats().allocated, before.allocated);
  EXPECT_EQ(memory.stats().reserved, before.reserved + 4 * kMiB);
  const std::uint64_t asked = memory.stats().raw_allocations;
  { const Tensor t = Tensor::empty({1 << 20}, DType::f32, kCuda); }
  EXPECT_EQ(memory.stats().raw_allocations, asked);
  memory.empty_cache();
  EXPECT_EQ(memory.stats().reserved, before.reserved);
  EXPECT_GT(memory_room(kCuda), 0U);
}

TEST_F(Cuda, OutOfMemoryNamesTheGpusLimit) {
  const std::string text = error_of(
      ErrorKind::memory, [] { Tensor::empty({std::int64_t{1} << 40}, DType::f32, kCuda); });
  expect_in("cuda:0 out of memory: asked for 4.00 TiB", text);
  expect_in(" of the GPU, ", text);
  const Tensor t = to_device(numbers({3}), kCuda);  // and it goes on
  expect_same(t, numbers({3}));
}

TEST_F(Cuda, PoisonIsNaN) {
  const PoisonScope poison(allocator(kCuda), true);
  const Tensor t = Tensor::empty({1}, DType::f32, kCuda);
  EXPECT_TRUE(std::isnan(t.item()));
}

TEST_F(Cuda, ABlockUsedOnAnotherStreamComesBack) {
  Allocator& memory = allocator(kCuda);
  Block* const a = memory.allocate(3 * kMiB);
  memory.used_on(a, 1);
  memory.deallocate(a);
  memory.empty_cache();  // waits for the stream
  Block* const b = memory.allocate(3 * kMiB);
  memory.used_on(b, 2);
  memory.deallocate(b);
  Block* const c = memory.allocate(3 * kMiB);
  memory.deallocate(c);
}

TEST_F(Cuda, PassThroughGivesEveryTensorItsOwnMemory) {
  Allocator& memory = allocator(kCuda);
  const bool before = memory.set_pass_through(true);
  const std::uint64_t asked = memory.stats().raw_allocations;
  {
    const Tensor a = to_device(numbers({3}), kCuda);
    const Tensor b = to_device(numbers({3}), kCuda);
    EXPECT_EQ(memory.stats().raw_allocations, asked + 2);
    expect_same(a, b);
  }
  memory.set_pass_through(before);
}

TEST(LaunchCounts, CountByScopeOpAndKernel) {
  count_launch("nobody_listens");
  start_counting_launches();
  const Tensor x = Tensor::empty({4, 8}, DType::f32, kMeta);
  const ConstView row{x.view().data, DType::f32, {4, 8}, {0, 1}};
  {
    const MemoryScope scope("attn");
    for (int i = 0; i < 2; ++i) {
      const CountedCall call("rope", viewed_bytes(x.view()) + viewed_bytes(row) + viewed_bytes(1));
      count_launch("rope_kernel");
      count_launch("sum_kernel");
    }
  }
  count_launch("adam_kernel");
  const std::vector<LaunchCount> counts = stop_counting_launches();
  ASSERT_EQ(counts.size(), 3U);
  EXPECT_EQ(counts[0].scope, "attn");
  EXPECT_EQ(counts[0].op, "rope");
  EXPECT_EQ(counts[0].kernel, "rope_kernel");
  EXPECT_EQ(counts[0].launches, 2U);
  EXPECT_EQ(counts[0].bytes, 2U * (128 + 32));
  EXPECT_EQ(counts[1].bytes, 0U);
  EXPECT_EQ(counts[2].scope, "");
  EXPECT_EQ(counts[2].op, "");
  EXPECT_TRUE(stop_counting_launches().empty());
}

}  // namespace
}  // namespace duet::test
