#include "train/profile/recorder.h"

#include <new>

#include "runtime/error.h"
#include "runtime/memory_ops.h"

namespace duet {

StepRecorder::StepRecorder(Device device) : device_(device), step_begin_(Clock::now()) {
  allocator(device_).set_listener(this);
  set_scope_listener(this);
}

StepRecorder::~StepRecorder() {
  allocator(device_).set_listener(nullptr);
  set_scope_listener(nullptr);
}

double StepRecorder::ms_now() const {
  return std::chrono::duration<double, std::milli>(Clock::now() - step_begin_).count();
}

void StepRecorder::begin_step() {
  steps_.emplace_back().first_event = events_.size();
  phase_ = StepPhase::forward;
  span_begin_ = 0;
  in_step_ = true;
  step_begin_ = Clock::now();
}

void StepRecorder::end_step() {
  close_span(current_scope());
  steps_.back().ms = span_begin_;
  steps_.back().end_event = events_.size();
  in_step_ = false;
}

void StepRecorder::enter(StepPhase phase) {
  close_span(current_scope());
  phase_ = phase;
}

void StepRecorder::on_memory(const MemoryEvent& event) noexcept {
  try {
    events_.push_back(event);
    event_ms_.push_back(in_step_ ? ms_now() : 0);
  } catch (const std::bad_alloc&) {
    complete_ = false;
  }
}

void StepRecorder::on_scope(ScopeId from, ScopeId) noexcept {
  if (!in_step_) return;
  try {
    close_span(from);
  } catch (const std::exception&) {  // no memory for the record, or a GPU that failed: that is
    complete_ = false;               // thrown again by what uses it next
  }
}

void StepRecorder::close_span(ScopeId scope) {
  synchronize(device_);  // a GPU's work belongs to the scope that gave it, not to the next
  const double now = ms_now();
  std::vector<Span>& spans = steps_.back().spans;
  const bool goes_on =
      !spans.empty() && spans.back().scope == scope && spans.back().phase == phase_;
  if (goes_on) {
    spans.back().end_ms = now;
  } else {
    spans.push_back({span_begin_, now, scope, phase_});
  }
  span_begin_ = now;
}

void StepRecorder::check_complete() const {
  check(complete_, ErrorKind::memory,
        "profile: the record of the step does not fit in memory; profile fewer steps, or a smaller "
        "model");
}

}  // namespace duet
