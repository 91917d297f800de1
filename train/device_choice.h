// Where a run happens, and why.
#pragma once

#include <string>

#include "runtime/device.h"

namespace duet {

#if DUET_CUDA_BUILD
inline constexpr bool kCudaBuild = true;
#else
inline constexpr bool kCudaBuild = false;
#endif

struct DeviceChoice {
  Device device;
  std::string reason;  // "chosen", or "auto: no usable GPU: the driver ..."
};

// `key` is auto, cpu or cuda: auto takes the GPU where one is usable. Nobody asks CUDA anything for
// cpu, nor for auto in a build without CUDA. Throws Error(usage) for cuda where no GPU is usable:
// what is missing, and the CUDA versions of driver and build.
DeviceChoice choose_device(const std::string& key);
inline Device training_device(const std::string& key) { return choose_device(key).device; }

// "cpu"; "cuda:0 (NVIDIA H200, 139.8 GiB)".
std::string device_words(Device device);

// "driver for CUDA 12.4, this build for 13.0"; "no driver, this build for CUDA 13.0".
std::string cuda_versions();

}  // namespace duet
