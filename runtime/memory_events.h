// What memory does, as it happens: for profiles and traces. Nothing listens by default, and then an
// event costs one comparison.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/memory_scope.h"

namespace duet {

// One change of one block.
struct MemoryEvent {
  enum class Type : std::uint8_t { allocate, free, mark };
  Type type = Type::allocate;
  MemoryKind kind = MemoryKind::temporary;  // of the block, from this event on
  ScopeId scope = 0;                        // its owner, from this event on
  std::uint64_t block = 0;                  // the number of its allocate() call: 1, 2, ...
  std::size_t asked = 0;                    // bytes asked for
  std::size_t bytes = 0;                    // bytes of the block: what `allocated` counts
  std::size_t reserved = 0;                 // of the allocator, after the event
  const char* op = nullptr;                 // the op at work; null outside ops
};

class MemoryListener {
 public:
  MemoryListener() = default;
  MemoryListener(const MemoryListener&) = delete;
  MemoryListener& operator=(const MemoryListener&) = delete;
  virtual ~MemoryListener() = default;
  // Called inside the allocator: it must neither throw nor allocate from it.
  virtual void on_memory(const MemoryEvent& event) noexcept = 0;
};

}  // namespace duet
