// Events of an allocator kept in memory, for tests.
#pragma once

#include <vector>

#include "runtime/allocator.h"

namespace duet::test {

class MemoryRecorder final : public MemoryListener {
 public:
  explicit MemoryRecorder(Allocator& memory) : memory_(memory) { memory_.set_listener(this); }
  ~MemoryRecorder() override { memory_.set_listener(nullptr); }
  void on_memory(const MemoryEvent& event) noexcept override { events.push_back(event); }

  std::vector<MemoryEvent> events;

 private:
  Allocator& memory_;
};

}  // namespace duet::test
