// The fake CUDA runtime finds what it is there to find: a right program gives right results however
// its streams run, and every bug planted in it ends in one line and exit status 42.
#include "tests/sim_cuda/runtime.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/sim_cuda/engine.h"
#include "tests/sim_cuda/runtime_test_kernels.h"

namespace sim {

// What GoogleTest prints.
void PrintTo(const RuntimeOptions& o, std::ostream* out) {
  *out << static_cast<int>(o.schedule) << ' ' << o.seed;
}

namespace {

constexpr std::int64_t kElements = 1000;
constexpr std::size_t kBytes = kElements * sizeof(float);

void expect_failure(const std::function<void()>& program, const std::string& words) {
  EXPECT_EXIT(program(), testing::ExitedWithCode(kExitStatus), "sim_cuda: .*" + words);
}

void succeed(cudaError_t error) { EXPECT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

float* device_floats(std::int64_t n = kElements) {
  void* data = nullptr;
  succeed(cudaMalloc(&data, static_cast<std::size_t>(n) * sizeof(float)));
  return static_cast<float*>(data);
}

cudaStream_t new_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t stream = nullptr;
  succeed(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}

cudaEvent_t new_event() {
  cudaEvent_t event = nullptr;
  succeed(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

// y[i] = x[i] + 1, by one thread.
void add_one(cudaStream_t stream, const float* x, float* y, std::int64_t n = kElements) {
  launch(
      stream, 1, 1, 0,
      [=] {
        for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] + 1;
      },
      "add_one_kernel");
}

void read_only(cudaStream_t stream, const float* x, float* sum) {
  launch(
      stream, 1, 1, 0, [=] { *sum = x[0] + x[kElements - 1]; }, "read_kernel");
}

void write_nowhere() {
  static volatile std::uintptr_t nowhere = 64;
  *reinterpret_cast<volatile int*>(nowhere) = 1;
}

enum class Bug {
  none,
  no_event_wait,
  kernel_on_wrong_stream,
  use_after_free,
  out_of_bounds,
  far_out_of_bounds,
  before_the_start,
  host_reads,
  host_writes,
  no_sync_before_reading,
  oversize_copy,
  pinned_overwritten,
  wrong_kind,
};

constexpr float kStart = 41;

// A pipeline as the product might have it: pinned memory to the device on a copy stream, a kernel
// on a compute stream that waits for it, the result back. Whether every element is right.
bool pipeline(Bug bug) {
  const cudaStream_t copies = new_stream();
  const cudaStream_t compute = new_stream();
  const cudaEvent_t arrived = new_event();
  void* pinned_data = nullptr;
  succeed(cudaMallocHost(&pinned_data, kBytes));
  auto* pinned = static_cast<float*>(pinned_data);
  std::fill_n(pinned, kElements, kStart);
  float* const x = device_floats();
  float* const y = device_floats();
  std::vector<float> result(kElements);

  succeed(cudaMemcpyAsync(x, pinned, kBytes, cudaMemcpyHostToDevice, copies));
  if (bug == Bug::pinned_overwritten) std::fill_n(pinned, kElements, 0.0F);
  if (bug == Bug::use_after_free) {
    succeed(cudaStreamSynchronize(copies));
    succeed(cudaFree(x));
  }
  if (bug != Bug::no_event_wait) {
    succeed(cudaEventRecord(arrived, copies));
    succeed(cudaStreamWaitEvent(compute, arrived, 0));
  }
  const std::int64_t n = bug == Bug::out_of_bounds       ? kElements + 16
                         : bug == Bug::far_out_of_bounds ? kElements + 5000
                                                         : kElements;
  const std::int64_t shift = bug == Bug::before_the_start ? -10 : 0;
  add_one(bug == Bug::kernel_on_wrong_stream ? new_stream() : compute, x, y + shift, n);
  const std::size_t bytes = kBytes + (bug == Bug::oversize_copy ? 64 : 0);
  if (bug == Bug::host_reads) result[0] = y[0];
  if (bug == Bug::host_writes) y[0] = 0;
  const auto kind = bug == Bug::wrong_kind ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
  succeed(cudaMemcpyAsync(result.data(), y, bytes, kind, compute));
  if (bug != Bug::no_sync_before_reading) succeed(cudaStreamSynchronize(compute));
  bool right = true;
  for (const float value : result) right = right && value == kStart + 1;

  succeed(cudaDeviceSynchronize());
  succeed(cudaFree(x));
  succeed(cudaFree(y));
  succeed(cudaFreeHost(pinned));
  succeed(cudaEventDestroy(arrived));
  succeed(cudaStreamDestroy(copies));
  succeed(cudaStreamDestroy(compute));
  return right;
}

// Every schedule that a program should run in.
class SimRuntime : public testing::TestWithParam<RuntimeOptions> {
 protected:
  void SetUp() override { runtime_options() = GetParam(); }
  void TearDown() override { runtime_options() = {}; }
};

std::vector<RuntimeOptions> schedules() {
  std::vector<RuntimeOptions> all(2);
  all[1].schedule = Schedule::eager;
  for (unsigned seed = 1; seed <= 3; ++seed) {
    RuntimeOptions& random = all.emplace_back();
    random.schedule = Schedule::random;
    random.seed = seed;
  }
  return all;
}

std::string name_of(const RuntimeOptions& o) {
  if (o.schedule == Schedule::random) return "random" + std::to_string(o.seed);
  return o.schedule == Schedule::lazy ? "lazy" : "eager";
}

INSTANTIATE_TEST_SUITE_P(Schedules, SimRuntime, testing::ValuesIn(schedules()),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(SimRuntime, ARightProgramIsRight) {
  const std::size_t bytes = live_bytes();
  const std::int64_t before = live_allocations();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pipeline(Bug::none));
  EXPECT_EQ(live_bytes(), bytes);
  EXPECT_EQ(live_allocations(), before);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_P(SimRuntime, FindsUnorderedStreams) {
  const std::string hazard =
      "stream hazard: add_one_kernel on stream [0-9]+ reads allocation "
      "#[0-9]+, unordered with the write by copy from pinned memory";
  // Laziest, the kernel runs before the copy; the copy then is what comes too early.
  const std::string reversed =
      "stream hazard: copy from pinned memory on stream [0-9]+ writes "
      "allocation #[0-9]+, unordered with the read by add_one_kernel";
  const std::string either = "(" + hazard + "|" + reversed + ")";
  expect_failure([] { pipeline(Bug::no_event_wait); }, either);
  expect_failure([] { pipeline(Bug::kernel_on_wrong_stream); }, "stream hazard: .*add_one_kernel");
}

TEST_P(SimRuntime, FindsWriteAfterReadAcrossStreams) {
  expect_failure(
      [] {
        float* const x = device_floats();
        float* const y = device_floats();
        const cudaStream_t first = new_stream();
        const cudaStream_t second = new_stream();
        succeed(cudaMemset(x, 0, kBytes));
        succeed(cudaDeviceSynchronize());
        read_only(first, x, y);
        succeed(cudaMemsetAsync(x, 0, kBytes, second));
        succeed(cudaDeviceSynchronize());
      },
      "stream hazard: (memset on stream [0-9]+ writes allocation .* with the read by read_kernel|"
      "read_kernel on stream [0-9]+ reads allocation .* with the write by memset)");
}

TEST_P(SimRuntime, FindsWrongAddresses) {
  expect_failure([] { pipeline(Bug::use_after_free); },
                 "use after free: add_one_kernel reads freed allocation #[0-9]+ \\(4000 bytes\\) "
                 "at offset 0");
  expect_failure([] { pipeline(Bug::out_of_bounds); },
                 "out of bounds: add_one_kernel wrote past the end of allocation #[0-9]+");
  expect_failure([] { pipeline(Bug::far_out_of_bounds); },
                 "out of bounds: add_one_kernel (reads|writes) at offset [0-9]+ of allocation "
                 "#[0-9]+ \\(4000 bytes\\), past its end");
  expect_failure([] { pipeline(Bug::before_the_start); },
                 "out of bounds: .*(before its start|before the start)");
  expect_failure([] { pipeline(Bug::host_reads); },
                 "host code reads device memory: allocation #[0-9]+ \\(4000 bytes\\) at offset 0");
  expect_failure([] { pipeline(Bug::host_writes); }, "host code writes device memory");
  expect_failure([] { pipeline(Bug::oversize_copy); },
                 "cudaMemcpyAsync: needs 4064 bytes at offset 0 of allocation #[0-9]+, which has "
                 "4000");
  expect_failure([] { pipeline(Bug::wrong_kind); },
                 "kind says host to device, the pointers are device to host");
  expect_failure(
      [] {
        launch(
            nullptr, 1, 1, 0, [] { write_nowhere(); }, "wild_kernel");
        cudaDeviceSynchronize();
      },
      "kernel wild_kernel");
}

TEST(SimRuntimeFinds, MissingSynchronisation) {
  runtime_options() = {};
  EXPECT_FALSE(pipeline(Bug::no_sync_before_reading));
  EXPECT_FALSE(pipeline(Bug::pinned_overwritten));
  runtime_options().schedule = Schedule::eager;  // which hides both
  EXPECT_TRUE(pipeline(Bug::no_sync_before_reading));
  EXPECT_TRUE(pipeline(Bug::pinned_overwritten));
  runtime_options() = {};
}

TEST_P(SimRuntime, FindsWrongFrees) {
  expect_failure(
      [] {
        float* const x = device_floats();
        cudaFree(x);
        cudaFree(x);
      },
      "cudaFree: allocation #[0-9]+ \\(4000 bytes\\) was freed before");
  expect_failure([] { cudaFree(device_floats() + 1); },
                 "cudaFree: got offset 4 of allocation #[0-9]+ \\(4000 bytes\\), expected its");
  expect_failure([] { cudaFree(std::vector<char>(10).data()); }, "cudaFree: .* is not device");
  expect_failure([] { cudaFreeHost(std::vector<char>(10).data()); }, "is not pinned memory");
}

TEST_P(SimRuntime, FindsWaitsForNobody) {
  expect_failure([] { cudaStreamWaitEvent(new_stream(), new_event(), 0); },
                 "event [0-9]+ was never recorded");
  expect_failure([] { cudaEventSynchronize(new_event()); }, "event [0-9]+ was never recorded");
  expect_failure(
      [] {
        const cudaStream_t stream = new_stream();
        cudaStreamDestroy(stream);
        cudaStreamSynchronize(stream);
      },
      "use of stream [0-9]+ after its destruction");
  expect_failure(
      [] {
        const cudaEvent_t event = new_event();
        cudaEventDestroy(event);
        cudaEventRecord(event, nullptr);
      },
      "is not an event, or was destroyed");
}

TEST_P(SimRuntime, TheDefaultStreamWaitsForBlockingStreams) {
  const cudaStream_t blocking = new_stream(cudaStreamDefault);
  float* const x = device_floats();
  std::vector<float> result(kElements);
  succeed(cudaMemset(x, 0, kBytes));
  add_one(blocking, x, x);  // ordered after it, as the stream is no cudaStreamNonBlocking one
  succeed(cudaMemcpy(result.data(), x, kBytes, cudaMemcpyDeviceToHost));
  EXPECT_EQ(result, std::vector<float>(kElements, 1));
  succeed(cudaFree(x));
}

TEST_P(SimRuntime, QueriesAndTimes) {
  const cudaStream_t stream = new_stream();
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  succeed(cudaEventCreate(&begin));
  succeed(cudaEventCreate(&end));
  float* const x = device_floats();
  succeed(cudaEventRecord(begin, stream));
  for (int i = 0; i < 3; ++i) succeed(cudaMemsetAsync(x, 0, kBytes, stream));
  succeed(cudaEventRecord(end, stream));
  int polls = 0;
  while (cudaEventQuery(end) == cudaErrorNotReady) ++polls;
  EXPECT_LE(polls, 5);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  float ms = -1;
  succeed(cudaEventElapsedTime(&ms, begin, end));
  EXPECT_GE(ms, 0);
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, new_event()), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  succeed(cudaFree(x));
}

TEST(SimRuntimeCopies, KindsAndStages) {
  runtime_options() = {};
  float* const x = device_floats(4);
  float* const y = device_floats(4);
  std::vector<float> host = {1, 2, 3, 4};
  std::vector<float> result(4);
  const cudaStream_t stream = new_stream();
  constexpr std::size_t kFour = 4 * sizeof(float);
  succeed(cudaMemcpyAsync(x, host.data(), kFour, cudaMemcpyDefault, stream));
  host.assign(4, 0);  // pageable memory was read at once
  succeed(cudaMemcpyAsync(y, x, kFour, cudaMemcpyDefault, stream));
  succeed(cudaMemcpyAsync(result.data(), y, kFour, cudaMemcpyDefault, stream));
  EXPECT_TRUE(std::isnan(result[0]));
  succeed(cudaStreamSynchronize(stream));
  EXPECT_EQ(result, (std::vector<float>{1, 2, 3, 4}));
  succeed(cudaMemcpy(result.data(), host.data(), kFour, cudaMemcpyHostToHost));
  EXPECT_EQ(result, host);
  float* const fresh = device_floats(4);
  succeed(cudaMemcpy(result.data(), fresh, kFour, cudaMemcpyDeviceToHost));
  EXPECT_TRUE(std::isnan(result[3]));  // nothing was written there
  expect_failure([&] { cudaMemcpyAsync(x + 1, x, 12, cudaMemcpyDeviceToDevice, stream); },
                 "source and destination overlap");
  for (float* p : {x, y, fresh}) succeed(cudaFree(p));
}

TEST(SimRuntimeMemory, RunsOut) {
  runtime_options() = {};
  runtime_options().memory = live_bytes() + 100000;
  void* big = nullptr;
  void* small = nullptr;
  EXPECT_EQ(cudaMalloc(&big, 100001), cudaErrorMemoryAllocation);
  EXPECT_EQ(big, nullptr);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  succeed(cudaMalloc(&big, 60000));
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  succeed(cudaMemGetInfo(&free_bytes, &total));
  EXPECT_EQ(free_bytes, 40000U);
  EXPECT_EQ(cudaMalloc(&small, 60000), cudaErrorMemoryAllocation);
  succeed(cudaFree(big));
  runtime_options() = {};
  cudaGetLastError();

  fail_allocation(2);
  const std::int64_t before = allocations();
  succeed(cudaMalloc(&big, 100));
  EXPECT_EQ(cudaMalloc(&small, 100), cudaErrorMemoryAllocation);
  succeed(cudaMalloc(&small, 100));
  EXPECT_EQ(allocations(), before + 2);
  EXPECT_NE(big, small);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(small) % 256, 0U);
  succeed(cudaFree(big));
  succeed(cudaFree(small));
  cudaGetLastError();
}

TEST(SimRuntimeDevice, WhatThereIs) {
  runtime_options() = {};
  int count = -1;
  int driver = 0;
  int runtime = 0;
  cudaDeviceProp properties;
  succeed(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 1);
  succeed(cudaGetDeviceProperties(&properties, 0));
  EXPECT_EQ(properties.major, 9);
  EXPECT_EQ(properties.totalGlobalMem, runtime_options().memory);
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
  runtime_options().arch = 70;
  succeed(cudaDeviceGetAttribute(&count, cudaDevAttrComputeCapabilityMajor, 0));
  EXPECT_EQ(count, 7);
  cudaGetLastError();
  launch(
      nullptr, 1, 1, 0, [] {}, "empty_kernel");
  EXPECT_EQ(cudaGetLastError(), cudaErrorNoKernelImageForDevice);
  runtime_options() = {};
  launch(
      nullptr, 1, 1, 60000, [] {}, "shared_kernel");  // without cudaFuncSetAttribute
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);

  runtime_options().devices = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 1), cudaErrorNoDevice);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorNoDevice), "cudaErrorNoDevice");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorNoDevice), "no CUDA-capable device is detected");

  runtime_options() = {};
  runtime_options().driver = Driver::too_old;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  succeed(cudaDriverGetVersion(&driver));
  succeed(cudaRuntimeGetVersion(&runtime));
  EXPECT_LT(driver, runtime);
  runtime_options() = {};
  cudaGetLastError();
}

TEST_P(SimRuntime, ArgumentsOfKernelsLieOnTheDevice) {
  float* const x = device_floats();
  float* const y = device_floats();
  const cudaStream_t stream = new_stream();
  std::vector<float> result(kElements, 3);
  succeed(cudaMemcpyAsync(x, result.data(), kBytes, cudaMemcpyHostToDevice, stream));
  launch_twice(stream, {x, kElements}, y);
  succeed(cudaMemcpyAsync(result.data(), y, kBytes, cudaMemcpyDeviceToHost, stream));
  succeed(cudaStreamSynchronize(stream));
  EXPECT_EQ(result, std::vector<float>(kElements, 6));
  expect_failure(
      [&] {
        launch_twice(stream, {result.data(), kElements}, y);
      },
      "twice_kernel gets the host address .*, which a GPU cannot read");
  expect_failure([&] { launch_twice(stream, {x, kElements}, result.data()); }, "host address");
  succeed(cudaFree(x));
  expect_failure(
      [&] {
        launch_twice(stream, {x, kElements}, y);
      },
      "twice_kernel: use after free: gets freed allocation #[0-9]+ \\(4000 bytes\\)");
  succeed(cudaFree(y));
}

TEST(SimRuntimeCrash, OfTheHostStaysACrash) {
  float* const x = device_floats();  // the handler is in place
  EXPECT_EXIT(
      write_nowhere(), [](int status) { return status != kExitStatus << 8; }, "");
  succeed(cudaFree(x));
}

}  // namespace
}  // namespace sim
