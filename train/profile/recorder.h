// StepRecorder: hears what memory and scopes do during training steps, and keeps it.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "runtime/allocator.h"
#include "train/trainer.h"

namespace duet {

// Listens from its making to its end, on the thread that made it.
class StepRecorder final : public MemoryListener, public ScopeListener {
 public:
  explicit StepRecorder(Device device);
  ~StepRecorder() override;

  struct Span {
    double begin_ms, end_ms;  // since the step began
    ScopeId scope;
    StepPhase phase;
  };
  struct Step {
    std::size_t first_event = 0, end_event = 0;  // its part of events()
    double ms = 0;
    std::vector<Span> spans;  // in order of time; none where nothing took time
  };
  // A step begins; it ends at end_step(). What happens in between is timed.
  void begin_step();
  void end_step();
  void enter(StepPhase phase);

  void on_memory(const MemoryEvent& event) noexcept override;
  void on_scope(ScopeId from, ScopeId to) noexcept override;

  // Throws Error(memory) if the records themselves did not fit.
  void check_complete() const;
  const std::vector<MemoryEvent>& events() const { return events_; }
  const std::vector<double>& event_ms() const {
    return event_ms_;
  }  // of each, since its step began
  const std::vector<Step>& steps() const { return steps_; }

 private:
  using Clock = std::chrono::steady_clock;
  double ms_now() const;
  void close_span(ScopeId scope);

  Device device_;
  std::vector<MemoryEvent> events_;
  std::vector<double> event_ms_;
  std::vector<Step> steps_;
  Clock::time_point step_begin_;
  double span_begin_ = 0;
  StepPhase phase_ = StepPhase::forward;
  bool in_step_ = false;
  bool complete_ = true;
};

}  // namespace duet
