// Device: where a tensor's bytes lie. `meta` counts bytes and owns none, so that a training step
// can be walked without memory.
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
  int index = 0;

  friend bool operator==(const Device&, const Device&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Device& d) {
    out << name(d.type);
    if (d.type == DeviceType::cuda) out << ':' << d.index;
    return out;
  }
};

inline constexpr Device kCpu{DeviceType::cpu, 0};
inline constexpr Device kCuda{DeviceType::cuda, 0};
inline constexpr Device kMeta{DeviceType::meta, 0};

}  // namespace duet
