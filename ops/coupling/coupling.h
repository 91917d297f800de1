// Kernels of the query-key couplings, and the workspace they run in.
//
// A kernel walks the tokens in blocks: the pair (x, k) of one head and up to 32 tokens is loaded
// into tiles that stay in the L1 cache, all n steps run on the tiles, and the result is written
// once. x is the head's query, or the mean of its group's queries when several share a key head.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/weight_gradient.h"
#include "runtime/launch_count.h"
#include "runtime/view.h"

namespace duet {

// uncoupled moves one tensor only, given as q: the queries, or the keys as if they were queries.
enum class CouplingMap : std::uint8_t { euler, leapfrog, symplectic_euler, uncoupled, affine };

struct CouplingSizes {
  CouplingMap map;
  std::int64_t batch, time, query_heads, key_heads, nets, width, hidden;
  std::int64_t steps;
  bool run_back;  // backward is given the pair after the last step, and inverts the map

  static constexpr std::int64_t kBlock = 32;  // tokens in a tile
  // Tiles are padded with zeros to whole groups of 8 columns, so that no loop has a remainder.
  static constexpr std::int64_t padded(std::int64_t n) { return (n + 7) / 8 * 8; }

  std::int64_t tokens() const { return batch * time; }
  std::int64_t group() const { return query_heads / key_heads; }
  // Evaluations of f. A leapfrog step begins with the kick that ended the one before it.
  std::int64_t stages() const { return steps + (map == CouplingMap::leapfrog ? 1 : 0); }
  std::int64_t padded_width() const { return padded(width); }
  std::int64_t padded_hidden() const { return padded(hidden); }
  std::int64_t pair_tile() const { return kBlock * padded_width(); }
  std::int64_t hidden_tile() const { return kBlock * padded_hidden(); }
  // One matrix [h, D] or [D, h], padded. affine has three for each of its two half-steps, as w2
  // gives both s and t.
  std::int64_t matrix() const { return padded_width() * padded_hidden(); }
  std::int64_t matrices() const { return map == CouplingMap::affine ? 6 : 2; }
  RowChunks chunks() const { return {tokens(), 4 * kBlock, 32}; }
};

// Where things lie in the workspace, in elements: the nets' matrices, padded and in both layouts;
// one scratch area of tiles per thread; one area of weight gradients per chunk and net (backward).
struct CouplingWorkspace {
  std::int64_t pair_tiles, hidden_tiles;  // of one scratch area, the pair tiles first
  std::int64_t scratch_begin, scratch_size, parts_begin, part_size, size;

  CouplingWorkspace(const CouplingSizes& s, std::int64_t threads, bool backward)
      : pair_tiles(pair_tiles_of(s, backward)),
        hidden_tiles(!backward                                    ? 2
                     : s.map == CouplingMap::affine || s.run_back ? 3
                                                                  : s.stages() + 2),
        scratch_begin(s.nets * 2 * s.matrices() * s.matrix()),
        scratch_size(pair_tiles * s.pair_tile() + hidden_tiles * s.hidden_tile()),
        parts_begin(scratch_begin + threads * scratch_size),
        part_size(backward ? s.matrices() * s.matrix() + 16 : 0),
        size(parts_begin + std::max<std::int64_t>(1, s.chunks().count) * s.nets * part_size) {}

 private:
  static std::int64_t pair_tiles_of(const CouplingSizes& s, bool backward) {
    if (s.map == CouplingMap::affine) {
      const std::int64_t pair = s.group() + 1;  // every query of the group, and the key
      if (!backward) return pair + 4;
      // The trajectory; the gradients of the pair; mean, s, e, t and their gradients.
      return (s.run_back ? pair + 1 : s.steps * pair + 1) + pair + 7;
    }
    if (!backward) return 2;
    return (s.run_back ? 3 : 2 * (s.stages() + 1)) + 2;
  }
};

// The same on a GPU, where a block keeps a tile in its registers: see fragment.cuh. The workspace
// is needed for the parts of weight gradients, one of each block and net (backward), and for the
// matrices packed, where all of them do not fit into shared memory.
struct CouplingCudaLayout {
  static constexpr std::int64_t kMaxWidth = 128, kMaxHidden = 128;
  static constexpr std::int64_t kMaxRows = (std::int64_t{1} << 31) - 1;  // tokens of all heads
  static constexpr std::int64_t tile_tokens(std::int64_t width) { return width > 64 ? 16 : 32; }

  std::int64_t width, hidden;  // padded
  std::int64_t matrix;         // packed, rows of width + 4
  std::int64_t blocks;         // of each net
  std::int64_t tiles_size;     // of shared memory, without the matrices
  bool matrices_in_shared;
  std::int64_t part_size, parts_begin, size;

  CouplingCudaLayout(const CouplingSizes& s, bool backward)
      : width(s.width > 64   ? 128
              : s.width > 32 ? 64
              : s.width > 16 ? 32
                             : 16),
        hidden(CouplingSizes::padded(s.hidden)),
        matrix(hidden * (width + 4)),
        blocks(blocks_of(s, width, backward)),
        tiles_size(tiles_of(s, width, hidden, backward)),
        matrices_in_shared((s.matrices() * matrix + tiles_size) * 4 <= kMaxShared),
        part_size(backward ? s.matrices() * hidden * width + 4 : 0),
        parts_begin(matrices_in_shared ? 0 : s.nets * s.matrices() * matrix),
        size(parts_begin + blocks * s.nets * part_size) {}

  std::int64_t shared_bytes(const CouplingSizes& s) const {
    return (tiles_size + (matrices_in_shared ? s.matrices() * matrix : 0)) * 4;
  }

 private:
  static constexpr std::int64_t kMaxShared = 226 << 10;  // bytes of a block

  // Three blocks for each of an H200's 132 processors, eight in forward, and no more than tiles.
  static std::int64_t blocks_of(const CouplingSizes& s, std::int64_t width, bool backward) {
    const std::int64_t tile = tile_tokens(width), most = backward ? 396 : 1056;
    const std::int64_t tiles = (s.tokens() + tile - 1) / tile * (s.nets == 1 ? s.key_heads : 1);
    return std::min(tiles, (most + s.nets - 1) / s.nets);
  }
  static std::int64_t tiles_of(const CouplingSizes& s, std::int64_t width, std::int64_t hidden,
                               bool backward) {
    const std::int64_t tokens = tile_tokens(width);
    if (!backward) return tokens * 12;  // 8 hidden units, and 4 columns against bank conflicts
    // x and the gradients at the outputs, for affine three more; two of hidden units. Or 16 sums of
    // each thread.
    const std::int64_t wide = s.map == CouplingMap::affine ? 6 : 2;
    return std::max<std::int64_t>(2048, tokens * (wide * width + 2 * (hidden + 4)));
  }
};

// q, k and their gradients: [B, T, H, D], last stride 1. w1 [G, h, D], w2 [G, D, h], dt [G]: no
// gaps; for affine w1 [G, 2, h, D], w2 [G, 2, 2 D, h], no dt. Null data: the map has no such input.
// The number of threads that the workspace was sized for is the most a CPU kernel uses.
struct CouplingKernels {
  struct Inputs {
    ConstView q, k, w1, w2, dt;
    // On a GPU: a rope_table's rows [T, 2, D / 2] of these tokens, no gaps, aligned, D / 2 in
    // fours. q_out and k_out are rotated by them, as are their gradients and the pair that run_back
    // begins with. Null data: nothing is rotated.
    ConstView rotation;

    std::uint64_t view_bytes() const {
      return viewed_bytes(q) + viewed_bytes(k) + viewed_bytes(w1) + viewed_bytes(w2) +
             viewed_bytes(dt) + viewed_bytes(rotation);
    }
  };
  void (*forward)(const CouplingSizes& sizes, const Inputs& in, View q_out, View k_out,
                  View workspace, std::int64_t threads);

  struct Gradients {
    ConstView q_out, k_out;  // given; null data: zero
    View q, k, w1, w2, dt;   // wanted; null data: not asked for
    bool add_w1, add_w2, add_dt;

    std::uint64_t view_bytes() const {
      return viewed_bytes(q_out) + viewed_bytes(k_out) + viewed_bytes(q) + viewed_bytes(k) +
             viewed_bytes(w1) + viewed_bytes(w2) + viewed_bytes(dt);
    }
  };
  void (*backward)(const CouplingSizes& sizes, const Inputs& in, const Gradients& gradients,
                   View workspace, std::int64_t threads);
};

extern const CouplingKernels coupling_cpu;
extern const CouplingKernels coupling_cuda;

}  // namespace duet
