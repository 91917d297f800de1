// What the walks over tokens and heads share: the cut into blocks and chunks, tiles in and out, the
// nets' matrices packed, and the sums of their gradients.
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

template <class Math>
class TileWalk {
 public:
  using T = typename Math::Scalar;

 protected:
  TileWalk(const CouplingSizes& sizes, View workspace, std::int64_t threads, bool backward)
      : s_(sizes),
        chunks_(sizes.chunks()),
        layout_(sizes, threads, backward),
        workspace_(workspace.as<T>()),
        threads_(threads) {}

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

  // A matrix [rows, columns] into its place in the workspace, plain and transposed, padded with
  // zeros. Net `net` has s_.matrices() places.
  void pack(std::int64_t net, std::int64_t place, const T* from, std::int64_t rows,
            std::int64_t columns) const {
    const Matrix<T> m = matrix(net, place, rows, columns);
    T* plain = matrix_data(net, place);
    T* transposed = plain + s_.matrix();
    std::fill_n(plain, 2 * s_.matrix(), T{0});
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        plain[i * m.plain.ld + j] = transposed[j * m.transposed.ld + i] = from[i * columns + j];
      }
    }
  }
  Matrix<T> matrix(std::int64_t net, std::int64_t place, std::int64_t rows,
                   std::int64_t columns) const {
    const T* plain = matrix_data(net, place);
    return {{plain, CouplingSizes::padded(columns)},
            {plain + s_.matrix(), CouplingSizes::padded(rows)}};
  }
  std::int64_t net_index(std::int64_t head) const { return s_.nets == 1 ? 0 : head; }

  Tile<T> pair_tile(T* scratch, std::int64_t i) const {
    return {scratch + i * s_.pair_tile(), s_.padded_width()};
  }
  Tile<T> hidden_tile(T* scratch, std::int64_t i) const {
    return {scratch + layout_.pair_tiles * s_.pair_tile() + i * s_.hidden_tile(),
            s_.padded_hidden()};
  }

  // The sums of a chunk: place i of a net is a matrix [hidden, width]; behind them, one number.
  T* part(std::int64_t chunk, std::int64_t net) const {
    return workspace_ + layout_.parts_begin + (chunk * s_.nets + net) * layout_.part_size;
  }
  Tile<T> part_matrix(std::int64_t chunk, std::int64_t net, std::int64_t place) const {
    return {part(chunk, net) + place * s_.matrix(), s_.padded_width()};
  }
  T* part_number(std::int64_t chunk, std::int64_t net) const {
    return part(chunk, net) + s_.matrices() * s_.matrix();
  }
  // Adds the chunks' parts, in order, into the first.
  void sum_chunks() const {
    if (chunks_.count == 0) return clear_parts(0);
    sum_parts(part(1, 0), chunks_.count - 1, s_.nets * layout_.part_size, part(0, 0), true);
  }
  // out [hidden, width], or its transpose [width, hidden], = (add ? out : 0) + factor sum.
  void write_gradient(Tile<const T> sum, T factor, bool transposed, bool add, T* out) const {
    for (std::int64_t j = 0; j < s_.hidden; ++j) {
      for (std::int64_t i = 0; i < s_.width; ++i) {
        T& to = out[transposed ? i * s_.hidden + j : j * s_.width + i];
        to = (add ? to : T{0}) + factor * sum.row(j)[i];
      }
    }
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

  CouplingSizes s_;
  RowChunks chunks_;
  CouplingWorkspace layout_;
  T* workspace_;
  std::int64_t threads_;

 private:
  T* matrix_data(std::int64_t net, std::int64_t place) const {
    return workspace_ + (net * s_.matrices() + place) * 2 * s_.matrix();
  }
  void clear_parts(std::int64_t chunk) const {
    std::fill_n(part(chunk, 0), s_.nets * layout_.part_size, T{0});
  }
  void prefetch(const Streams& streams, std::int64_t first, std::int64_t end,
                std::int64_t head) const {
    const std::int64_t last = std::min(first + CouplingSizes::kBlock, end);
    for (std::int64_t t = first + head; t < last; t += s_.key_heads) {
      for (const TokenRows<const T>* stream : streams) stream->prefetch(t, s_.width);
    }
  }
};

}  // namespace duet
