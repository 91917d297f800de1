// Device: where a tensor's bytes lie. `meta` counts bytes and owns none, so that a training step
// can be walked without memory: as the cpu takes it, or as cuda does.
#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>

namespace duet {

enum class DeviceType : std::uint8_t { cpu, cuda, meta };
inline constexpr int kDeviceTypes = 3;

inline std::string_view name(DeviceType t) {
  switch (t) {
    case DeviceType::cpu:
      return "cpu";
    case DeviceType::cuda:
      return "cuda";
    case DeviceType::meta:
      return "meta";
  }
  return "?";
}

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;  // of the GPU; on meta 1 if it stands for cuda, 0 if for the cpu

  // Whose kernels, scratch sizes and limits apply: its own, on meta those of the device it stands
  // for. What ops allocate and refuse depends on this alone.
  DeviceType kernels() const {
    if (type != DeviceType::meta) return type;
    return index == 1 ? DeviceType::cuda : DeviceType::cpu;
  }

  friend bool operator==(const Device&, const Device&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Device& d) {
    out << name(d.type);
    if (d.type == DeviceType::cuda) out << ':' << d.index;
    if (d.type == DeviceType::meta && d.kernels() == DeviceType::cuda) out << " (for cuda)";
    return out;
  }
};

inline constexpr Device kCpu{DeviceType::cpu, 0};
inline constexpr Device kCuda{DeviceType::cuda, 0};
inline constexpr Device kMeta{DeviceType::meta, 0};      // stands for the cpu
inline constexpr Device kMetaCuda{DeviceType::meta, 1};  // stands for cuda

inline Device meta_for(Device device) {
  return device.kernels() == DeviceType::cuda ? kMetaCuda : kMeta;
}

}  // namespace duet
