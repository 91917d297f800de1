// Small tables from the host to the GPU, without waiting for it. For .cu files alone.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>

namespace duet::cuda {

// Writes the parts one after another to `to` in device memory, by one copy on stream(). They may be
// changed at once: what is copied lies in pinned memory until the copy has run. Waits only where
// many copies have not run yet.
void upload(void* to, std::initializer_list<std::span<const std::byte>> parts);

}  // namespace duet::cuda
