// The walk over tokens and heads that every coupling shares: loads a tile, lets the Step run on it,
// stores it. Templates over Step (the equations) and Math (the arithmetic).
#pragma once

#include <atomic>
#include <cstring>

#include "ops/coupling/coupling.h"
#include "ops/coupling/coupling_net.h"
#include "runtime/cpu/parallel.h"

namespace duet {

// The rows [D] of a [B, T, H, D] view, tokens counted through all batches.
template <class T>
struct TokenRows {
  T* data = nullptr;
  std::int64_t time = 1, batch_stride = 0, time_stride = 0, head_stride = 0, heads = 0;
  bool even = true;  // one stride leads from token to token, also across batches

  template <class AnyView>
  explicit TokenRows(const AnyView& v) {
    if (v.data == nullptr) return;
    data = v.template as<std::remove_const_t<T>>();
    time = v.size(1);
    batch_stride = v.stride(0);
    time_stride = v.stride(1);
    head_stride = v.stride(2);
    heads = v.size(2);
    even = v.size(0) == 1 || batch_stride == time * time_stride;
  }
  bool defined() const { return data != nullptr; }
  T* row(std::int64_t token, std::int64_t head) const {
    const std::int64_t offset =
        even ? token * time_stride : token / time * batch_stride + token % time * time_stride;
    return data + offset + head * head_stride;
  }
  void prefetch(std::int64_t token, std::int64_t width) const {
    if (!defined()) return;
    const T* p = row(token, 0);
    for (std::int64_t h = 0; h < heads; ++h, p += head_stride)
      for (std::int64_t j = 0; j < width; j += 64 / static_cast<std::int64_t>(sizeof(T)))
        __builtin_prefetch(p + j, 0, 2);
  }
};

// Tokens [first, first + count) of one key head and its group of query heads.
struct TokenBlock {
  std::int64_t first, count, head, group;
  std::int64_t rows() const { return CouplingSizes::padded(count); }  // of the tile in use
};

template <class Step, class Math>
class CouplingWalk {
 public:
  using T = typename Math::Scalar;
  using Net = CouplingNet<Math>;

  CouplingWalk(const CouplingSizes& sizes, ConstView w1, ConstView w2, ConstView dt, View workspace,
               std::int64_t threads, bool backward)
      : s_(sizes),
        chunks_(sizes.chunks()),
        layout_(sizes, threads, backward),
        workspace_(workspace.as<T>()),
        threads_(threads),
        dt_(dt.as<T>()) {
    parallel_chunks(s_.nets, [&](std::int64_t g) {
      pack_net(w1.as<T>() + g * s_.hidden * s_.width, w2.as<T>() + g * s_.hidden * s_.width,
               workspace_ + g * 4 * s_.matrix());
    });
  }

  void forward(ConstView q, ConstView k, View q_out, View k_out) const {
    const TokenRows<const T> q_in(q), k_in(k);
    const TokenRows<T> q_to(q_out), k_to(k_out);
    for_blocks({&q_in, &k_in}, [&](const TokenBlock& block, T* scratch, std::int64_t /*chunk*/) {
      const Net net = net_of(block.head);
      if (net.dt == 0) return copy_pair(q_in, k_in, block, q_to, k_to);
      const std::int64_t rows = block.rows();
      const Tile<T> x_tile = pair_tile(scratch), y_tile = pair_tile(scratch + s_.pair_tile());
      T* hidden = scratch + 2 * s_.pair_tile();
      const Tile<T> h = hidden_tile(hidden), a = hidden_tile(hidden + s_.hidden_tile());
      const Tile<T> x_last = place(q_to, block, block.group, x_tile);
      const Tile<T> y_last = place(k_to, block, 1, y_tile);
      const T mean = T{1} / static_cast<T>(block.group);
      load_group(q_in, block, mean, x_tile);
      Tile<const T> x = x_tile, y = find(k_in, block, y_tile);
      for (std::int64_t step = 1; step <= s_.steps; ++step) {
        const bool last = step == s_.steps;
        Step::forward(net, rows, x, y, h, a, last ? x_last : x_tile, last ? y_last : y_tile);
        x = x_tile;
        y = y_tile;
      }
      if (y_last.data == y_tile.data) store(y_tile, k_to, block);
      if (x_last.data == x_tile.data) store_group(q_in, block, mean, T{1}, x_tile, y_tile, q_to);
    });
  }

  void backward(ConstView q, ConstView k, const CouplingKernels::Gradients& gradients) const {
    const TokenRows<const T> q_in(q), k_in(k), gq_in(gradients.q_out), gk_in(gradients.k_out);
    const TokenRows<T> gq_to(gradients.q), gk_to(gradients.k);
    const bool weights = gradients.w1.data != nullptr || gradients.w2.data != nullptr ||
                         gradients.dt.data != nullptr;
    for_blocks({&q_in, &k_in, &gq_in, &gk_in}, [&](const TokenBlock& block, T* scratch,
                                                   std::int64_t chunk) {
      const Net net = net_of(block.head);
      if (net.dt == 0 && !weights) return copy_pair(gq_in, gk_in, block, gq_to, gk_to);
      const std::int64_t rows = block.rows();
      // The trajectory: x, k and h at the start of each step; then the gradients of the pair.
      const auto x_tile = [&](std::int64_t step) {
        return pair_tile(scratch + 2 * step * s_.pair_tile());
      };
      const auto y_tile = [&](std::int64_t step) {
        return pair_tile(scratch + (2 * step + 1) * s_.pair_tile());
      };
      T* hidden = scratch + 2 * (s_.steps + 1) * s_.pair_tile();
      const auto h = [&](std::int64_t step) {
        return hidden_tile(hidden + step * s_.hidden_tile());
      };
      const Tile<T> g = h(s_.steps), a = h(s_.steps + 1);
      const T mean = T{1} / static_cast<T>(block.group);
      load_group(q_in, block, mean, x_tile(0));
      const Tile<const T> y_first = find(k_in, block, y_tile(0));
      for (std::int64_t step = 1; step < s_.steps; ++step) {
        Step::forward(net, rows, x_tile(step - 1), step == 1 ? y_first : y_tile(step - 1),
                      h(step - 1), a, x_tile(step), y_tile(step));
      }
      Step::evaluate(net, rows, x_tile(s_.steps - 1), h(s_.steps - 1));

      // The queries of a group move as one, so the gradient of x' is the sum of theirs; each of
      // them has an equal share in the gradient that f sends to their mean.
      const Tile<T> gx_tile = x_tile(s_.steps), gy_tile = y_tile(s_.steps);
      const Tile<T> gx_last = place(gq_to, block, block.group, gx_tile);
      const Tile<T> gy_last = place(gk_to, block, 1, gy_tile);
      Tile<const T> gx = find_group(gq_in, block, gx_tile), gy = gy_tile;
      load(gk_in, block, gy_tile);
      const typename Net::Part sums = part_of(chunk, block.head);
      for (std::int64_t step = s_.steps - 1; step >= 0; --step) {
        Step::backward(net, rows, x_tile(step), step == 0 ? y_first : y_tile(step), h(step), gx, gy,
                       g, a, weights ? &sums : nullptr, step == 0 ? gx_last : gx_tile,
                       step == 0 ? gy_last : gy_tile);
        gx = gx_tile;
      }
      if (net.dt == 0) return copy_pair(gq_in, gk_in, block, gq_to, gk_to);
      if (gk_to.defined() && gy_last.data == gy_tile.data) store(gy_tile, gk_to, block);
      if (gq_to.defined() && gx_last.data == gx_tile.data) {
        store_group(gq_in, block, T{1}, mean, gx_tile, gy_tile, gq_to);
      }
    });
    if (weights) reduce(gradients);
  }

 private:
  // Calls f(block, scratch, chunk) for every block of 32 tokens of every key head. A thread takes
  // the next chunk when it is done with one, and keeps its scratch.
  // While a head is worked on, its share of the next block's rows is fetched: a block touches 32
  // short pieces of memory per head, which the processor does not foresee by itself.
  using Streams = std::initializer_list<const TokenRows<const T>*>;
  template <class F>
  void for_blocks(const Streams& streams, F&& f) const {
    std::atomic<std::int64_t> next{0};
    parallel_chunks(threads_, [&](std::int64_t thread) {
      T* scratch = workspace_ + layout_.scratch_begin + thread * layout_.scratch_size;
      for (std::int64_t chunk = next++; chunk < chunks_.count; chunk = next++) {
        clear_parts(chunk);
        const std::int64_t end = chunks_.end(chunk);
        for (std::int64_t t = chunks_.begin(chunk); t < end; t += CouplingSizes::kBlock) {
          const std::int64_t count = std::min(CouplingSizes::kBlock, end - t);
          for (std::int64_t head = 0; head < s_.key_heads; ++head) {
            prefetch(streams, t + CouplingSizes::kBlock, end, head);
            f(TokenBlock{t, count, head, s_.group()}, scratch, chunk);
          }
        }
      }
    });
  }

  void prefetch(const Streams& streams, std::int64_t first, std::int64_t end,
                std::int64_t head) const {
    const std::int64_t last = std::min(first + CouplingSizes::kBlock, end);
    for (std::int64_t t = first + head; t < last; t += s_.key_heads) {
      for (const TokenRows<const T>* stream : streams) stream->prefetch(t, s_.width);
    }
  }

  // w1, w1^T, w2, w2^T of one net, padded with zeros.
  void pack_net(const T* w1, const T* w2, T* to) const {
    const std::int64_t width = s_.padded_width(), hidden = s_.padded_hidden(), size = s_.matrix();
    std::memset(to, 0, static_cast<std::size_t>(4 * size) * sizeof(T));
    for (std::int64_t j = 0; j < s_.hidden; ++j) {
      for (std::int64_t i = 0; i < s_.width; ++i) {
        to[j * width + i] = to[size + i * hidden + j] = w1[j * s_.width + i];
        to[2 * size + i * hidden + j] = to[3 * size + j * width + i] = w2[i * s_.hidden + j];
      }
    }
  }
  std::int64_t net_index(std::int64_t head) const { return s_.nets == 1 ? 0 : head; }
  Net net_of(std::int64_t head) const {
    const std::int64_t width = s_.padded_width(), hidden = s_.padded_hidden(), size = s_.matrix();
    const T* w = workspace_ + net_index(head) * 4 * size;
    return {width,
            hidden,
            {w, width},
            {w + size, hidden},
            {w + 2 * size, hidden},
            {w + 3 * size, width},
            dt_[net_index(head)]};
  }
  Tile<T> pair_tile(T* data) const { return {data, s_.padded_width()}; }
  Tile<T> hidden_tile(T* data) const { return {data, s_.padded_hidden()}; }
  T* part(std::int64_t chunk, std::int64_t net) const {
    return workspace_ + layout_.parts_begin + (chunk * s_.nets + net) * layout_.part_size;
  }
  void clear_parts(std::int64_t chunk) const {
    std::fill_n(part(chunk, 0), s_.nets * layout_.part_size, T{0});
  }
  typename Net::Part part_of(std::int64_t chunk, std::int64_t head) const {
    T* p = part(chunk, net_index(head));
    return {pair_tile(p), pair_tile(p + s_.matrix()), p + 2 * s_.matrix()};
  }

  // The rows of one head may be used where they lie if they are whole tiles: no padding needed.
  template <class U>
  bool lies_well(const TokenRows<U>& rows, const TokenBlock& block) const {
    return rows.defined() && rows.even && block.count == block.rows() &&
           s_.width == s_.padded_width();
  }
  Tile<const T> find(const TokenRows<const T>& from, const TokenBlock& block, Tile<T> tile) const {
    if (lies_well(from, block)) return {from.row(block.first, block.head), from.time_stride};
    load(from, block, tile);
    return tile;
  }
  Tile<const T> find_group(const TokenRows<const T>& from, const TokenBlock& block,
                           Tile<T> tile) const {
    if (block.group == 1) return find(from, block, tile);
    load_group(from, block, T{1}, tile);
    return tile;
  }
  // Where results go: straight to their rows, or to `tile` for store() to bring there.
  Tile<T> place(const TokenRows<T>& to, const TokenBlock& block, std::int64_t group,
                Tile<T> tile) const {
    if (group == 1 && lies_well(to, block))
      return {to.row(block.first, block.head), to.time_stride};
    return tile;
  }

  // Copies the block's rows; zeros in the padding.
  void load(const TokenRows<const T>& from, const TokenBlock& block, Tile<T> tile) const {
    const std::int64_t count = from.defined() ? block.count : 0;
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(tile.row(i), from.row(block.first + i, block.head), row_bytes());
    }
    clear_padding(block, count, tile);
  }
  // tile = factor * sum over the group's query heads.
  void load_group(const TokenRows<const T>& from, const TokenBlock& block, T factor,
                  Tile<T> tile) const {
    if (block.group == 1 || !from.defined()) return load(from, block, tile);
    const std::int64_t first_head = block.head * block.group;
    for (std::int64_t i = 0; i < block.count; ++i) {
      T* sum = tile.row(i);
      std::memcpy(sum, from.row(block.first + i, first_head), row_bytes());
      for (std::int64_t m = 1; m < block.group; ++m) {
        const T* row = from.row(block.first + i, first_head + m);
        for (std::int64_t j = 0; j < s_.width; ++j) sum[j] += row[j];
      }
      for (std::int64_t j = 0; j < s_.width; ++j) sum[j] *= factor;
    }
    clear_padding(block, block.count, tile);
  }
  void clear_padding(const TokenBlock& block, std::int64_t count, Tile<T> tile) const {
    std::fill(tile.row(count), tile.row(block.rows()), T{0});
    for (std::int64_t i = 0; i < count; ++i) {
      std::fill(tile.row(i) + s_.width, tile.row(i) + tile.ld, T{0});
    }
  }

  void store(Tile<const T> tile, const TokenRows<T>& to, const TokenBlock& block) const {
    for (std::int64_t i = 0; i < block.count; ++i) {
      std::memcpy(to.row(block.first + i, block.head), tile.row(i), row_bytes());
    }
  }
  // Every query head of the group moves by share * (tile - what load_group had put there).
  void store_group(const TokenRows<const T>& before, const TokenBlock& block, T factor, T share,
                   Tile<const T> tile, Tile<T> spare_tile, const TokenRows<T>& to) const {
    if (block.group == 1) return store(tile, to, block);
    load_group(before, block, factor, spare_tile);
    const std::int64_t first_head = block.head * block.group;
    copy_heads(before, block, first_head, block.group, to);
    for (std::int64_t i = 0; i < block.count; ++i) {
      const T *now = tile.row(i), *then = spare_tile.row(i);
      for (std::int64_t m = 0; m < block.group; ++m) {
        T* row = to.row(block.first + i, first_head + m);
        for (std::int64_t j = 0; j < s_.width; ++j) row[j] += share * (now[j] - then[j]);
      }
    }
  }
  // A step of size 0 is the identity to the last bit, -0 and infinities included.
  void copy_pair(const TokenRows<const T>& q, const TokenRows<const T>& k, const TokenBlock& block,
                 const TokenRows<T>& q_to, const TokenRows<T>& k_to) const {
    copy_heads(q, block, block.head * block.group, block.group, q_to);
    copy_heads(k, block, block.head, 1, k_to);
  }
  // Zeros where `from` is undefined; nothing where nobody asked.
  void copy_heads(const TokenRows<const T>& from, const TokenBlock& block, std::int64_t head,
                  std::int64_t heads, const TokenRows<T>& to) const {
    if (!to.defined()) return;
    for (std::int64_t i = 0; i < block.count; ++i) {
      for (std::int64_t h = head; h < head + heads; ++h) {
        T* row = to.row(block.first + i, h);
        if (from.defined()) {
          std::memcpy(row, from.row(block.first + i, h), row_bytes());
        } else {
          std::fill_n(row, s_.width, T{0});
        }
      }
    }
  }
  std::size_t row_bytes() const { return static_cast<std::size_t>(s_.width) * sizeof(T); }

  // The chunks' parts added in order, times dt, in the shapes of the weights.
  void reduce(const CouplingKernels::Gradients& gradients) const {
    const std::int64_t width = s_.padded_width();
    if (chunks_.count == 0) clear_parts(0);
    const auto write = [](View out, bool add, std::int64_t i, T value) {
      if (out.data == nullptr) return;
      T& to = out.as<T>()[i];
      to = add ? to + value : value;
    };
    parallel_chunks(s_.nets * s_.hidden, [&](std::int64_t row) {
      const std::int64_t net = row / s_.hidden, j = row % s_.hidden;
      T* w1 = part(0, net) + j * width;
      T* w2 = w1 + s_.matrix();
      for (std::int64_t c = 1; c < chunks_.count; ++c) {
        const T* more = part(c, net) + j * width;
        for (std::int64_t i = 0; i < s_.width; ++i) w1[i] += more[i];
        for (std::int64_t i = 0; i < s_.width; ++i) w2[i] += more[s_.matrix() + i];
      }
      for (std::int64_t i = 0; i < s_.width; ++i) {
        write(gradients.w1, gradients.add_w1, row * s_.width + i, dt_[net] * w1[i]);
        write(gradients.w2, gradients.add_w2, (net * s_.width + i) * s_.hidden + j,
              dt_[net] * w2[i]);
      }
    });
    for (std::int64_t net = 0; net < s_.nets; ++net) {
      T sum = 0;
      for (std::int64_t c = 0; c < chunks_.count; ++c) sum += part(c, net)[2 * s_.matrix()];
      write(gradients.dt, gradients.add_dt, net, sum);
    }
  }

  CouplingSizes s_;
  RowChunks chunks_;
  CouplingWorkspace layout_;
  T* workspace_;
  std::int64_t threads_;
  const T* dt_;
};

}  // namespace duet
