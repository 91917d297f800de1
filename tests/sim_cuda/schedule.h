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
  unsigned next_unstarted() const;  // its number
  void start() { ++started_; }

  // Threads that waited and may go on.
  bool any_ready() const { return first_ready_ < ready_.size(); }
  void add_ready(Thread& thread) { ready_.push_back(&thread); }
  Thread& take_ready();

  // Whether a ready thread goes before an unstarted one; there is one.
  bool ready_first();
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
