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

// The key that a user's word for a device is: auto, cpu or cuda, which "cuda:0" means too. Throws
// Error(usage) for other words, with the nearest one; `where` starts the message.
std::string device_key(const std::string& word, const std::string& where);

// `key` is auto, cpu or cuda (or cuda:0): auto takes the GPU where one is usable. Nobody asks CUDA
// anything for cpu, nor for auto in a build without CUDA. Throws Error(usage) for cuda where no GPU
// is usable: what is missing, and the CUDA versions of driver and build.
DeviceChoice choose_device(const std::string& key);
// "device: cpu: auto: no usable GPU: ..." where auto fell back in a build for CUDA; else "". A
// command that runs something says it before anything else.
std::string fallback_notice(const std::string& key, const DeviceChoice& choice);
inline Device training_device(const std::string& key) { return choose_device(key).device; }
// The meta device on which such a run is planned. cuda needs no GPU for that, nor a build for CUDA:
// only auto asks for one. Throws Error(usage) for another word.
Device planning_device(const std::string& key);

// "cpu"; "cuda:0 (NVIDIA H200, 139.8 GiB)".
std::string device_words(Device device);

// "driver for CUDA 12.4, this build for 13.0"; "no driver, this build for CUDA 13.0".
std::string cuda_versions();

}  // namespace duet
