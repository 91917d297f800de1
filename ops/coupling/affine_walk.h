// The walk of the affine coupling. A step, with two nets (s1, t1) and (s2, t2):
//   k' = k exp(s1(x)) + t1(x) ;  x' = x exp(s2(k')) + t2(k')
// Each query of a group takes the map of x, which is affine in x: so the mean of the queries after
// the step is x', as if they were one.
#pragma once

#include "ops/coupling/coupling_net.h"
#include "ops/coupling/token_blocks.h"

namespace duet {

template <class Math>
class AffineWalk : TileWalk<Math> {
 public:
  using T = typename Math::Scalar;
  using Net = AffineNet<Math>;

  AffineWalk(const CouplingSizes& sizes, const CouplingKernels::Inputs& in, View workspace,
             std::int64_t threads, bool backward)
      : TileWalk<Math>(sizes, workspace, threads, backward), q_in_(in.q), k_in_(in.k) {
    const std::int64_t size = s_.hidden * s_.width;
    parallel_chunks(2 * s_.nets, [&](std::int64_t i) {
      const std::int64_t net = i / 2, place = i % 2 * 3;
      const T* w2 = in.w2.as<T>() + 2 * i * size;
      this->pack(net, place, in.w1.as<T>() + i * size, s_.hidden, s_.width);
      this->pack(net, place + 1, w2, s_.width, s_.hidden);
      this->pack(net, place + 2, w2 + size, s_.width, s_.hidden);
    });
  }

  void forward(View q_out, View k_out) const {
    const TokenRows<T> q_to(q_out), k_to(k_out);
    this->for_blocks({&q_in_, &k_in_}, [&](const TokenBlock& block, T* scratch, std::int64_t) {
      const Tiles at{*this, scratch, block.group + 1};
      load_pair(block, at, 0);
      for (std::int64_t i = 0; i < s_.steps; ++i) {
        move_key(block, at, 0, 0);
        move_queries(block, at, 0, 0);
      }
      this->store(at.k(0), k_to, block);
      for (std::int64_t m = 0; m < block.group; ++m) {
        this->store(at.x(0, m), q_to, query_block(block, m));
      }
    });
  }

  // With the pair before a step and k' after its first half, from gx', gk' of the pair after it:
  //   gs2 = sum over the group of gx' x exp(s2),  gt2 = sum of gx',  gx = gx' exp(s2)
  //   gk' += back through (s2, t2)
  //   gs1 = gk' k exp(s1),  gt1 = gk',  gk = gk' exp(s1)
  //   gx += back through (s1, t1), to each query its share 1 / group
  // where back through (s, t) stands at AffineNet::backward, on gs (1 - s^2) and gt.
  void backward(const CouplingKernels::Gradients& gradients) const {
    const TokenRows<const T> gq_in(gradients.q_out), gk_in(gradients.k_out);
    const TokenRows<T> gq_to(gradients.q), gk_to(gradients.k);
    const bool weights = gradients.w1.data != nullptr || gradients.w2.data != nullptr;
    this->for_blocks({&q_in_, &k_in_, &gq_in, &gk_in},
                     [&](const TokenBlock& block, T* scratch, std::int64_t chunk) {
                       const Tiles at{*this, scratch, block.group + 1};
                       load_pair(block, at, s_.run_back ? s_.steps : 0);
                       for (std::int64_t i = 0; i < s_.steps && !s_.run_back; ++i) {
                         move_key(block, at, i, i + 1);
                         if (i + 1 < s_.steps) move_queries(block, at, i, i + 1);
                       }
                       for (std::int64_t m = 0; m < block.group; ++m) {
                         this->load(gq_in, query_block(block, m), at.gx(m));
                       }
                       this->load(gk_in, block, at.gk());
                       for (std::int64_t i = s_.steps - 1; i >= 0; --i) {
                         queries_backward(block, at, i, chunk, weights);
                         key_backward(block, at, i, chunk, weights);
                       }
                       if (gk_to.defined()) this->store(at.gk(), gk_to, block);
                       for (std::int64_t m = 0; m < block.group && gq_to.defined(); ++m) {
                         this->store(at.gx(m), gq_to, query_block(block, m));
                       }
                     });
    if (weights) reduce(gradients);
  }

 private:
  using TileWalk<Math>::s_;
  using TileWalk<Math>::layout_;

  // The pair before each step i = 0 .. n, a tile for each query of the group; run back, and in
  // forward, the queries move where they are. Then gradients, and what one half-step needs.
  struct Tiles {
    const AffineWalk& walk;
    T* scratch;
    std::int64_t pair;  // tiles of a pair

    bool in_place() const { return walk.s_.run_back || walk.layout_.part_size == 0; }
    Tile<T> tile(std::int64_t i) const { return walk.pair_tile(scratch, i); }
    Tile<T> from_end(std::int64_t i) const { return tile(walk.layout_.pair_tiles - i); }
    Tile<T> x(std::int64_t i, std::int64_t m) const {
      return tile((in_place() ? 0 : i * pair + 1) + m);
    }
    Tile<T> k(std::int64_t i) const { return tile(in_place() ? pair - 1 + i % 2 : i * pair); }
    Tile<T> mean() const { return from_end(4); }
    Tile<T> s() const { return from_end(3); }
    Tile<T> e() const { return from_end(2); }
    Tile<T> t() const { return from_end(1); }
    // Backward only.
    Tile<T> gs() const { return from_end(5); }
    Tile<T> gt() const { return from_end(6); }
    Tile<T> gmean() const { return from_end(7); }
    Tile<T> gk() const { return from_end(8); }
    Tile<T> gx(std::int64_t m) const { return from_end(9 + m); }
    Tile<T> h() const { return walk.hidden_tile(scratch, 0); }
    Tile<T> a() const { return walk.hidden_tile(scratch, 1); }
    Tile<T> g() const { return walk.hidden_tile(scratch, 2); }
  };

  static TokenBlock query_block(const TokenBlock& block, std::int64_t m) {
    return {block.first, block.count, block.head * block.group + m, 1};
  }
  void load_pair(const TokenBlock& block, const Tiles& at, std::int64_t i) const {
    for (std::int64_t m = 0; m < block.group; ++m) {
      this->load(q_in_, query_block(block, m), at.x(i, m));
    }
    this->load(k_in_, block, at.k(i));
  }
  Tile<const T> mean_query(const TokenBlock& block, const Tiles& at, std::int64_t i) const {
    if (block.group == 1) return at.x(i, 0);
    const T share = T{1} / static_cast<T>(block.group);
    const Tile<T> mean = at.mean();
    std::fill(mean.row(0), mean.row(block.rows()), T{0});
    for (std::int64_t m = 0; m < block.group; ++m) add(block, share, at.x(i, m), mean);
    return mean;
  }
  // sum += alpha x
  void add(const TokenBlock& block, T alpha, Tile<const T> x, Tile<T> sum) const {
    Math::add_scaled(block.rows(), s_.padded_width(), alpha, x, sum, sum);
  }

  // The key before step `i` to where the key before step `to` lies.
  void move_key(const TokenBlock& block, const Tiles& at, std::int64_t i, std::int64_t to) const {
    const std::int64_t rows = block.rows();
    net_of(block.head, 0)
        .evaluate(rows, mean_query(block, at, i), at.h(), at.a(), at.s(), at.e(), at.t());
    Math::scale_and_shift(rows, s_.padded_width(), at.k(i), at.e(), at.t(), at.k(to));
  }
  void move_queries(const TokenBlock& block, const Tiles& at, std::int64_t i,
                    std::int64_t to) const {
    const std::int64_t rows = block.rows();
    net_of(block.head, 1).evaluate(rows, at.k(to), at.h(), at.a(), at.s(), at.e(), at.t());
    for (std::int64_t m = 0; m < block.group; ++m) {
      Math::scale_and_shift(rows, s_.padded_width(), at.x(i, m), at.e(), at.t(), at.x(to, m));
    }
  }

  void queries_backward(const TokenBlock& block, const Tiles& at, std::int64_t i,
                        std::int64_t chunk, bool weights) const {
    const std::int64_t rows = block.rows(), width = s_.padded_width();
    const Net net = net_of(block.head, 1);
    const Tile<const T> k_after = at.k(i + 1);
    net.evaluate(rows, k_after, at.h(), at.a(), at.s(), at.e(), s_.run_back ? at.t() : Tile<T>{});
    Tile<const T> gt = at.gx(0);
    if (block.group > 1) {
      const Tile<T> sum = at.gt();
      std::fill(sum.row(0), sum.row(rows), T{0});
      for (std::int64_t m = 0; m < block.group; ++m) add(block, T{1}, at.gx(m), sum);
      gt = sum;
    }
    for (std::int64_t m = 0; m < block.group; ++m) {
      if (s_.run_back) {
        Math::shift_and_scale_back(rows, width, at.x(i, m), at.e(), at.t(), at.x(i, m));
      }
      Math::scale_gradient(rows, width, m > 0, at.gx(m), at.x(i, m), at.e(), at.gs());
    }
    Math::tanh_backward(rows * width, at.s().data, at.gs().data);
    const typename Net::Part part = part_of(chunk, block.head, 1);
    net.backward(rows, k_after, at.h(), at.gs(), gt, at.g(), at.a(), weights ? &part : nullptr,
                 at.gk(), at.gk());
    for (std::int64_t m = 0; m < block.group; ++m) {
      Math::multiply(rows, width, at.e(), at.gx(m));
    }
  }

  void key_backward(const TokenBlock& block, const Tiles& at, std::int64_t i, std::int64_t chunk,
                    bool weights) const {
    const std::int64_t rows = block.rows(), width = s_.padded_width();
    const Net net = net_of(block.head, 0);
    const Tile<const T> x = mean_query(block, at, i);
    net.evaluate(rows, x, at.h(), at.a(), at.s(), at.e(), s_.run_back ? at.t() : Tile<T>{});
    if (s_.run_back) {
      Math::shift_and_scale_back(rows, width, at.k(i + 1), at.e(), at.t(), at.k(i));
    }
    Math::scale_gradient(rows, width, false, at.gk(), at.k(i), at.e(), at.gs());
    Math::tanh_backward(rows * width, at.s().data, at.gs().data);
    const typename Net::Part part = part_of(chunk, block.head, 0);
    const Tile<T> gx = block.group == 1 ? at.gx(0) : at.gmean();
    net.backward(rows, x, at.h(), at.gs(), at.gk(), at.g(), at.a(), weights ? &part : nullptr,
                 block.group == 1 ? gx : Tile<T>{}, gx);
    const T share = T{1} / static_cast<T>(block.group);
    for (std::int64_t m = 0; m < block.group && block.group > 1; ++m) {
      add(block, share, gx, at.gx(m));
    }
    Math::multiply(rows, width, at.e(), at.gk());
  }

  // half: 0 moves the key, 1 the queries
  Net net_of(std::int64_t head, std::int64_t half) const {
    const std::int64_t net = this->net_index(head), place = 3 * half;
    return {s_.padded_width(), s_.padded_hidden(), this->matrix(net, place, s_.hidden, s_.width),
            this->matrix(net, place + 1, s_.width, s_.hidden),
            this->matrix(net, place + 2, s_.width, s_.hidden)};
  }
  typename Net::Part part_of(std::int64_t chunk, std::int64_t head, std::int64_t half) const {
    const std::int64_t net = this->net_index(head), place = 3 * half;
    return {this->part_matrix(chunk, net, place), this->part_matrix(chunk, net, place + 1),
            this->part_matrix(chunk, net, place + 2)};
  }

  void reduce(const CouplingKernels::Gradients& gradients) const {
    this->sum_chunks();
    const std::int64_t size = s_.hidden * s_.width;
    parallel_chunks(2 * s_.nets, [&](std::int64_t i) {
      const typename Net::Part sum = part_of(0, i / 2, i % 2);
      if (gradients.w1.data != nullptr) {
        this->write_gradient(sum.w1, T{1}, false, gradients.add_w1,
                             gradients.w1.as<T>() + i * size);
      }
      if (gradients.w2.data != nullptr) {
        T* w2 = gradients.w2.as<T>() + 2 * i * size;
        this->write_gradient(sum.ws_transposed, T{1}, true, gradients.add_w2, w2);
        this->write_gradient(sum.wt_transposed, T{1}, true, gradients.add_w2, w2 + size);
      }
    });
  }

  TokenRows<const T> q_in_, k_in_;
};

}  // namespace duet
