// MetaSource: addresses without memory. The allocator's policy and statistics run as on a device,
// so that a training step can be planned where it would not fit.
#pragma once

#include "runtime/allocator.h"

namespace duet {

class MetaSource final : public RawSource {
 public:
  void* allocate(std::size_t bytes) noexcept override;
  void deallocate(void*, std::size_t) noexcept override {}
  std::size_t part_bytes() const noexcept override;

 private:
  std::uintptr_t next_ = std::uintptr_t{1} << 40;  // no address is given twice
};

}  // namespace duet
