// A limit on what tensors hold, in the same bytes in which a plan speaks.
#pragma once

#include <cstddef>

#include "runtime/device.h"

namespace duet {

// Caps the live bytes of the device's allocator; 0 lifts the cap. A run whose planned peak is below
// it never meets it, however its memory was cut: caches are given back before `reserved` grows
// beyond the limit, and only what the source does not take back in parts stays above.
// (Allocator::set_limit caps `reserved`, which depends on the history of the process.)
void set_live_limit(Device device, std::size_t bytes);

// The most that live bytes can reach now: by the limits, and by what the source has free. 0:
// nothing is known to bound them.
std::size_t memory_room(Device device);

}  // namespace duet
