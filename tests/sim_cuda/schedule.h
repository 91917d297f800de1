// Who takes the next turn. CUDA promises no order among threads, so a kernel has to be right in
// every order that sim::Options can ask for.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

#include "tests/sim_cuda/engine.h"
#include "tests/sim_cuda/thread.h"

namespace sim {

class Schedule {
 public:
  // Takes the order from sim::options.
  void begin_grid(std::size_t blocks, unsigned threads);
  std::size_t block(std::size_t turn) const;  // which one comes as the turn-th
  void begin_block();

  // Threads of the block that never ran.
  bool any_unstarted() const { return started_ < threads_; }
  // The number of the one that starts next.
  unsigned next_unstarted() const {
    if (order_ == Order::random) return start_order_[started_];
    return order_ == Order::forward ? started_ : threads_ - 1 - started_;
  }
  void start() { ++started_; }

  // Threads that waited and may go on.
  bool any_ready() const { return first_ready_ < ready_.size(); }
  void add_ready(Thread& thread) { ready_.push_back(&thread); }
  // Forward the oldest, in reverse the youngest, else drawn.
  Thread& take_ready() {
    const std::size_t last = ready_.size() - 1;
    std::size_t chosen = first_ready_;
    if (order_ == Order::reverse) chosen = last;
    if (order_ == Order::random) chosen += random_() % (ready_.size() - first_ready_);
    Thread& thread = *ready_[chosen];
    if (order_ == Order::forward) {
      ++first_ready_;
    } else {
      ready_[chosen] = ready_[last];
      ready_.pop_back();
    }
    if (!any_ready()) {
      ready_.clear();
      first_ready_ = 0;
    }
    return thread;
  }

  // Whether a ready thread goes before an unstarted one; there is one.
  bool ready_first() {
    return any_ready() && (!any_unstarted() || order_ != Order::random || coin());
  }
  // Whether a thread that ended gives way to a ready one although there are unstarted ones.
  bool give_way() { return order_ == Order::random && any_ready() && coin(); }

 private:
  bool coin() { return random_() >> 8 & 1; }

  Order order_ = Order::forward;
  std::minstd_rand random_;
  std::size_t blocks_ = 0;
  unsigned threads_ = 0;
  unsigned started_ = 0;
  std::vector<std::size_t> block_order_;  // empty except in random order
  std::vector<unsigned> start_order_;     // likewise
  std::vector<Thread*> ready_;
  std::size_t first_ready_ = 0;  // those before it were taken
};

}  // namespace sim
