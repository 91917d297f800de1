// The walk of the couplings that move a pair by dt and f: loads a tile, lets the Step run its
// stages on it, stores it. Templates over Step (the equations) and Math (the arithmetic).
#pragma once

#include "ops/coupling/pair_steps.h"
#include "ops/coupling/token_blocks.h"

namespace duet {

template <class Step, class Math>
class PairWalk : TileWalk<Math> {
 public:
  using T = typename Math::Scalar;
  using Net = CouplingNet<Math>;

  PairWalk(const CouplingSizes& sizes, const CouplingKernels::Inputs& in, View workspace,
           std::int64_t threads, bool backward)
      : TileWalk<Math>(sizes, workspace, threads, backward),
        q_in_(in.q),
        k_in_(in.k),
        dt_(in.dt.as<T>()) {
    const std::int64_t size = s_.hidden * s_.width;
    parallel_chunks(s_.nets, [&](std::int64_t g) {
      this->pack(g, 0, in.w1.as<T>() + g * size, s_.hidden, s_.width);
      this->pack(g, 1, in.w2.as<T>() + g * size, s_.width, s_.hidden);
    });
  }

  void forward(View q_out, View k_out) const {
    const TokenRows<T> q_to(q_out), k_to(k_out);
    this->for_blocks({&q_in_, &k_in_}, [&](const TokenBlock& block, T* scratch, std::int64_t) {
      const Net net = net_of(block.head);
      if (net.dt == 0) return this->copy_pair(q_in_, k_in_, block, q_to, k_to);
      const std::int64_t rows = block.rows(), stages = s_.stages();
      const Tile<T> x_tile = this->pair_tile(scratch, 0), y_tile = this->pair_tile(scratch, 1);
      const Hidden<T> hidden{this->hidden_tile(scratch, 0), this->hidden_tile(scratch, 1)};
      const Tile<T> x_last = this->place(q_to, block, block.group, x_tile);
      const Tile<T> y_last = this->place(k_to, block, 1, y_tile);
      const T mean = T{1} / static_cast<T>(block.group);
      this->load_group(q_in_, block, mean, x_tile);
      Tile<const T> x = x_tile, y = y_tile;
      if (Step::kHasKey) y = this->find(k_in_, block, y_tile);
      for (std::int64_t i = 0; i < stages; ++i) {
        // x moves for the last time in the last stage that has a drift.
        const bool last = i + 1 == stages, x_done = last || Step::stage(s_, i + 1).drift == 0;
        const Tile<T> x_out = x_done ? x_last : x_tile, y_out = last ? y_last : y_tile;
        Step::forward(net, Step::stage(s_, i), rows, x, y, hidden, x_out, y_out);
        x = x_out;
        y = y_out;
      }
      if (Step::kHasKey && y_last.data == y_tile.data) this->store(y_tile, k_to, block);
      if (x_last.data == x_tile.data) {
        this->store_group(q_in_, block, mean, T{1}, x_tile, y_tile, q_to);
      }
    });
  }

  // The trajectory is made again from the pair before the first step, or taken back from the pair
  // after the last one, stage by stage as backward needs it.
  void backward(const CouplingKernels::Gradients& gradients) const {
    const TokenRows<const T> gq_in(gradients.q_out), gk_in(gradients.k_out);
    const TokenRows<T> gq_to(gradients.q), gk_to(gradients.k);
    const bool weights = gradients.w1.data != nullptr || gradients.w2.data != nullptr ||
                         gradients.dt.data != nullptr;
    this->for_blocks({&q_in_, &k_in_, &gq_in, &gk_in}, [&](const TokenBlock& block, T* scratch,
                                                           std::int64_t chunk) {
      const Net net = net_of(block.head);
      if (net.dt == 0 && !weights) return this->copy_pair(gq_in, gk_in, block, gq_to, gk_to);
      const std::int64_t rows = block.rows(), stages = s_.stages();
      const Tiles at{*this, scratch};
      const T mean = T{1} / static_cast<T>(block.group);
      Tile<const T> y_first = at.y(0);
      if (s_.run_back) {
        this->load_group(q_in_, block, mean, at.x(stages));
        this->load(k_in_, block, at.y(stages));
      } else {
        this->load_group(q_in_, block, mean, at.x(0));
        if (Step::kHasKey) y_first = this->find(k_in_, block, at.y(0));
        for (std::int64_t i = 0; i < stages; ++i) {
          const Tile<const T> y = i == 0 ? y_first : at.y(i);
          if (i + 1 < stages) {
            Step::forward(net, Step::stage(s_, i), rows, at.x(i), y, at.hidden(i), at.x(i + 1),
                          at.y(i + 1));
          } else {
            Step::evaluate(net, Step::stage(s_, i), rows, at.x(i), y, at.hidden(i), at.y(i + 1));
          }
        }
      }

      // The queries of a group move as one, so the gradient of x' is the sum of theirs; each of
      // them has an equal share in the gradient that f sends to their mean.
      const Tile<T> gx_tile = at.gradient(0), gy_tile = at.gradient(1);
      const Tile<T> gx_last = this->place(gq_to, block, block.group, gx_tile);
      const Tile<T> gy_last = this->place(gk_to, block, 1, gy_tile);
      const Tile<const T> gy = gy_tile;
      Tile<const T> gx = this->find_group(gq_in, block, gx_tile);
      if (Step::kHasKey) this->load(gk_in, block, gy_tile);
      const typename Net::Part part = part_of(chunk, block.head);
      for (std::int64_t i = stages - 1; i >= 0; --i) {
        if constexpr (Step::kInvertible) {
          if (s_.run_back) {
            Step::invert(net, Step::stage(s_, i), rows, at.x(i), at.y(i + 1), at.hidden(i),
                         i > 0 ? at.y(i) : Tile<T>{});
          }
        }
        Step::backward(net, Step::stage(s_, i), rows,
                       {at.x(i), i == 0 ? y_first : at.y(i), at.hidden(i).h, at.y(i + 1)},
                       {gx, gy, i == 0 ? gx_last : gx_tile, i == 0 ? gy_last : gy_tile, at.g(),
                        at.hidden(i).a, weights ? &part : nullptr});
        gx = gx_tile;
      }
      if (net.dt == 0) return this->copy_pair(gq_in, gk_in, block, gq_to, gk_to);
      if (Step::kHasKey && gk_to.defined() && gy_last.data == gy_tile.data) {
        this->store(gy_tile, gk_to, block);
      }
      if (gq_to.defined() && gx_last.data == gx_tile.data) {
        this->store_group(gq_in, block, T{1}, mean, gx_tile, gy_tile, gq_to);
      }
    });
    if (weights) reduce(gradients);
  }

 private:
  using TileWalk<Math>::s_;
  using TileWalk<Math>::layout_;

  // The scratch of a backward: the pair before each stage i and W1 x of it; the pair after the last
  // stage; the gradients. Run back, the pair before a stage takes the place of an older one.
  struct Tiles {
    const PairWalk& walk;
    T* scratch;

    bool run_back() const { return walk.s_.run_back; }
    Tile<T> x(std::int64_t i) const { return walk.pair_tile(scratch, run_back() ? 0 : 2 * i); }
    Tile<T> y(std::int64_t i) const {
      return walk.pair_tile(scratch, run_back() ? 1 + i % 2 : 2 * i + 1);
    }
    Tile<T> gradient(std::int64_t i) const {
      return walk.pair_tile(scratch, walk.layout_.pair_tiles - 2 + i);
    }
    Hidden<T> hidden(std::int64_t i) const {
      return {walk.hidden_tile(scratch, run_back() ? 0 : i),
              walk.hidden_tile(scratch, walk.layout_.hidden_tiles - 1)};
    }
    Tile<T> g() const { return walk.hidden_tile(scratch, walk.layout_.hidden_tiles - 2); }
  };

  Net net_of(std::int64_t head) const {
    const std::int64_t net = this->net_index(head);
    return {s_.padded_width(), s_.padded_hidden(), this->matrix(net, 0, s_.hidden, s_.width),
            this->matrix(net, 1, s_.width, s_.hidden), dt_[net]};
  }
  typename Net::Part part_of(std::int64_t chunk, std::int64_t head) const {
    const std::int64_t net = this->net_index(head);
    return {this->part_matrix(chunk, net, 0), this->part_matrix(chunk, net, 1),
            this->part_number(chunk, net)};
  }

  void reduce(const CouplingKernels::Gradients& gradients) const {
    this->sum_chunks();
    parallel_chunks(s_.nets, [&](std::int64_t net) {
      const typename Net::Part sum = part_of(0, net);
      const std::int64_t begin = net * s_.hidden * s_.width;
      if (gradients.w1.data != nullptr) {
        this->write_gradient(sum.w1, dt_[net], false, gradients.add_w1,
                             gradients.w1.as<T>() + begin);
      }
      if (gradients.w2.data != nullptr) {
        this->write_gradient(sum.w2_transposed, dt_[net], true, gradients.add_w2,
                             gradients.w2.as<T>() + begin);
      }
      if (gradients.dt.data != nullptr) {
        T& to = gradients.dt.as<T>()[net];
        to = (gradients.add_dt ? to : T{0}) + *sum.dt;
      }
    });
  }

  TokenRows<const T> q_in_, k_in_;
  const T* dt_;
};

}  // namespace duet
