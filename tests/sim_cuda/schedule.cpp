// Forward: oldest first. Reverse: highest number, youngest first. Random: drawn anew at every turn.
#include "tests/sim_cuda/schedule.h"

#include <algorithm>
#include <numeric>

namespace sim {

void Schedule::begin_grid(std::size_t blocks, unsigned threads) {
  order_ = options.order;
  blocks_ = blocks;
  threads_ = threads;
  block_order_.clear();
  start_order_.clear();
  if (order_ != Order::random) return;
  random_.seed(options.seed * 2 + 1);
  block_order_.resize(blocks);
  std::iota(block_order_.begin(), block_order_.end(), std::size_t{0});
  std::shuffle(block_order_.begin(), block_order_.end(), random_);
  start_order_.resize(threads);
  std::iota(start_order_.begin(), start_order_.end(), 0U);
}

std::size_t Schedule::block(std::size_t turn) const {
  if (order_ == Order::random) return block_order_[turn];
  return order_ == Order::forward ? turn : blocks_ - 1 - turn;
}

void Schedule::begin_block() {
  started_ = 0;
  ready_.clear();
  first_ready_ = 0;
  std::shuffle(start_order_.begin(), start_order_.end(), random_);
}

unsigned Schedule::next_unstarted() const {
  if (order_ == Order::random) return start_order_[started_];
  return order_ == Order::forward ? started_ : threads_ - 1 - started_;
}

Thread& Schedule::take_ready() {
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

bool Schedule::ready_first() {
  return any_ready() && (!any_unstarted() || order_ != Order::random || coin());
}

}  // namespace sim
