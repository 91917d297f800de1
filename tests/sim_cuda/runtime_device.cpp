// The fake CUDA runtime: which device there is, errors, launches, and the options of the simulator.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "tests/sim_cuda/engine.h"
#include "tests/sim_cuda/runtime.h"
#include "tests/sim_cuda/runtime_calls.h"
#include "tests/sim_cuda/streams.h"

namespace sim {

namespace {

constexpr int kOldDriver = 12040;  // of CUDA 12.4
constexpr int kProcessors = 132;
constexpr int kClockKilohertz = 1'980'000;
constexpr int kSharedBytes = 48 << 10;
constexpr int kSharedBytesOptIn = 227 << 10;
constexpr int kSharedBytesProcessor = 228 << 10;

thread_local cudaError_t last_error = cudaSuccess;

// The value of a variable among the names; `otherwise` where it is not set.
template <class T, std::size_t N>
T choice(const char* variable, const std::pair<const char*, T> (&names)[N], T otherwise) {
  const char* value = std::getenv(variable);
  if (value == nullptr) return otherwise;
  std::string known;
  for (const auto& [name, meaning] : names) {
    if (std::string_view(name) == value) return meaning;
    known += std::string(known.empty() ? "" : ", ") + name;
  }
  fail("%s: got %s, expected one of %s", variable, value, known.c_str());
}

long long number(const char* variable, long long otherwise) {
  const char* value = std::getenv(variable);
  if (value == nullptr) return otherwise;
  char* end = nullptr;
  const long long n = std::strtoll(value, &end, 10);
  if (end == value || *end != 0 || n < 0) fail("%s: got %s, expected a number", variable, value);
  return n;
}

RuntimeOptions options_of_environment() {
  RuntimeOptions o;
  o.schedule = choice<Schedule>(
      "DUET_SIM_STREAMS",
      {{"lazy", Schedule::lazy}, {"eager", Schedule::eager}, {"random", Schedule::random}},
      o.schedule);
  o.seed = static_cast<unsigned>(number("DUET_SIM_SEED", o.seed));
  o.memory = static_cast<std::size_t>(number("DUET_SIM_MEMORY", static_cast<long long>(o.memory)));
  o.devices = static_cast<int>(number("DUET_SIM_DEVICES", o.devices));
  o.driver = choice<Driver>(
      "DUET_SIM_DRIVER", {{"ok", Driver::ok}, {"too_old", Driver::too_old}, {"none", Driver::none}},
      o.driver);
  o.arch = static_cast<int>(number("DUET_SIM_ARCH", o.arch));
  o.allow_tf32 = number("DUET_SIM_TF32", 0) != 0;
  o.no_epilogues = static_cast<unsigned>(number("DUET_SIM_NO_EPILOGUES", o.no_epilogues));
  options.order = choice<Order>(
      "DUET_SIM_ORDER",
      {{"forward", Order::forward}, {"reverse", Order::reverse}, {"random", Order::random}},
      options.order);
  options.seed = static_cast<unsigned>(number("DUET_SIM_SEED", options.seed));
  return o;
}

// The most dynamic shared memory that any kernel may have.
std::size_t shared_limit = kSharedBytes;

int major() { return runtime_options().arch / 10; }
int minor() { return runtime_options().arch % 10; }

cudaError_t attribute(int* value, cudaDeviceAttr which) {
  switch (which) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = major();
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = minor();
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = kProcessors;
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = 2048;
      break;
    case cudaDevAttrMaxGridDimX:
      *value = 2147483647;
      break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      *value = 65535;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = kSharedBytes;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = kSharedBytesOptIn;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = kSharedBytesProcessor;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
      *value = 65536;
      break;
    case cudaDevAttrClockRate:
      *value = kClockKilohertz;
      break;
    case cudaDevAttrL2CacheSize:
      *value = 50 << 20;
      break;
    case cudaDevAttrIntegrated:
      *value = 0;
      break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
      *value = 1;
      break;
    default:
      fail("cudaDeviceGetAttribute: attribute %d is not simulated", static_cast<int>(which));
  }
  return cudaSuccess;
}

void describe(cudaDeviceProp& p) {
  std::memset(&p, 0, sizeof p);
  std::strncpy(p.name, "Simulated GPU", sizeof p.name - 1);
  p.totalGlobalMem = runtime_options().memory;
  p.sharedMemPerBlock = kSharedBytes;
  p.sharedMemPerBlockOptin = kSharedBytesOptIn;
  p.sharedMemPerMultiprocessor = kSharedBytesProcessor;
  p.regsPerBlock = 65536;
  p.warpSize = 32;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsPerMultiProcessor = 2048;
  std::fill_n(p.maxThreadsDim, 2, 1024);
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 2147483647;
  std::fill_n(p.maxGridSize + 1, 2, 65535);
  p.major = major();
  p.minor = minor();
  p.multiProcessorCount = kProcessors;
  p.l2CacheSize = 50 << 20;
  p.memoryBusWidth = 5120;
  p.unifiedAddressing = 1;
  p.concurrentKernels = 1;
}

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
// NVIDIA's words.
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
};

const ErrorText& text_of(cudaError_t error) {
  static constexpr ErrorText kUnknown = {cudaErrorUnknown, "unrecognized error code",
                                         "unrecognized error code"};
  const auto* found = std::find_if(std::begin(kErrors), std::end(kErrors),
                                   [=](const ErrorText& e) { return e.error == error; });
  return found == std::end(kErrors) ? kUnknown : *found;
}

}  // namespace

RuntimeOptions& runtime_options() {
  static RuntimeOptions o = options_of_environment();
  return o;
}

cudaError_t Call::device_error() const {
  if (runtime_options().driver != Driver::ok) return cudaErrorInsufficientDriver;
  return runtime_options().devices == 0 ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t Call::answer(cudaError_t error) const {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// The oldest GPU that release builds have code for.
constexpr int kOldestArch = 80;

void launch(cudaStream_t stream, dim3 grid, dim3 block, std::size_t shared_bytes,
            std::function<void()> body, const char* kernel) {
  (void)on_device([&] {
    if (runtime_options().arch < kOldestArch) return cudaErrorNoKernelImageForDevice;
    check_launch(grid, block, shared_bytes, kernel);
    if (shared_bytes > shared_limit) return cudaErrorInvalidValue;  // no cudaFuncSetAttribute
    enqueue(stream, kernel,
            [=, body = std::move(body)] { run_grid(grid, block, shared_bytes, body, kernel); });
    return cudaSuccess;
  });
}

}  // namespace sim

using sim::on_device;

extern "C" {

cudaError_t CUDARTAPI cudaGetLastError() { return std::exchange(sim::last_error, cudaSuccess); }
cudaError_t CUDARTAPI cudaPeekAtLastError() { return sim::last_error; }
const char* CUDARTAPI cudaGetErrorName(cudaError_t error) { return sim::text_of(error).name; }
const char* CUDARTAPI cudaGetErrorString(cudaError_t error) { return sim::text_of(error).text; }

cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  *count = 0;
  return on_device([&] {
    *count = sim::runtime_options().devices;
    return cudaSuccess;
  });
}
cudaError_t CUDARTAPI cudaSetDevice(int device) {
  return on_device([&] {
    return device >= 0 && device < sim::runtime_options().devices ? cudaSuccess
                                                                  : cudaErrorInvalidDevice;
  });
}
cudaError_t CUDARTAPI cudaGetDevice(int* device) {
  return on_device([&] {
    *device = 0;
    return cudaSuccess;
  });
}
cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return on_device([&] {
    if (device != 0) return cudaErrorInvalidDevice;
    sim::describe(*properties);
    return cudaSuccess;
  });
}
cudaError_t CUDARTAPI cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  return on_device(
      [&] { return device == 0 ? sim::attribute(value, which) : cudaErrorInvalidDevice; });
}
cudaError_t CUDARTAPI cudaDriverGetVersion(int* version) {
  switch (sim::runtime_options().driver) {
    case sim::Driver::ok:
      *version = CUDART_VERSION;
      break;
    case sim::Driver::too_old:
      *version = sim::kOldDriver;
      break;
    case sim::Driver::none:
      *version = 0;
      break;
  }
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaFuncSetAttribute(const void* /*kernel*/, cudaFuncAttribute which,
                                           int value) {
  return on_device([&] {
    if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || value > sim::kSharedBytesOptIn) return cudaErrorInvalidValue;
    sim::shared_limit = std::max(sim::shared_limit, static_cast<std::size_t>(value));
    return cudaSuccess;
  });
}

}  // extern "C"
