// HostSource: the machine's main memory, mapped in large aligned pieces. Refuses what the machine
// (or its container) cannot give now, instead of waiting for the system to kill the process.
#pragma once

#include "runtime/allocator.h"

namespace duet {

// Parts of a mapping that can be given back: a multiple of every page size in use.
inline constexpr std::size_t kHostPart = std::size_t{64} << 10;

class HostSource final : public RawSource {
 public:
  void* allocate(std::size_t bytes) noexcept override;
  void deallocate(void* data, std::size_t bytes) noexcept override;
  std::size_t part_bytes() const noexcept override { return kHostPart; }
  bool has_bytes() const noexcept override { return true; }
  SourceLimit limit() const override;

 private:
  std::size_t given_ = 0;      // bytes given and not yet back
  std::size_t unchecked_ = 0;  // bytes given since the machine was last asked
};

}  // namespace duet
