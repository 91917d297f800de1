// What is drawn once per launch or block.
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

}  // namespace sim
