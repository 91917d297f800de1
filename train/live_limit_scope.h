// LiveLimitScope: a limit on what tensors hold, for as long as a run takes.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/live_limit.h"

namespace duet {

// What was planned to fit stays below the limit for as long as it runs.
class LiveLimitScope {
 public:
  LiveLimitScope(Device device, std::optional<std::uint64_t> bytes)
      : device_(device), set_(bytes.has_value()) {
    if (set_) set_live_limit(device_, *bytes);
  }
  ~LiveLimitScope() {
    if (set_) set_live_limit(device_, 0);
  }
  LiveLimitScope(const LiveLimitScope&) = delete;
  LiveLimitScope& operator=(const LiveLimitScope&) = delete;

 private:
  Device device_;
  bool set_;
};

}  // namespace duet
