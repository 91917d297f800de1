// Kernels of the query-key couplings, and the workspace they run in.
//
// A kernel walks the tokens in blocks: the pair (x, k) of one head and up to 32 tokens is loaded
// into tiles that stay in the L1 cache, all n steps run on the tiles, and the result is written
// once. x is the head's query, or the mean of its group's queries when several share a key head.
#pragma once

#include <cstdint>

#include "ops/weight_gradient.h"
#include "runtime/view.h"

namespace duet {

struct CouplingSizes {
  std::int64_t batch, time, query_heads, key_heads, nets, width, hidden;
  std::int64_t steps;

  static constexpr std::int64_t kBlock = 32;  // tokens in a tile
  // Tiles are padded with zeros to whole groups of 8 columns, so that no loop has a remainder.
  static constexpr std::int64_t padded(std::int64_t n) { return (n + 7) / 8 * 8; }

  std::int64_t tokens() const { return batch * time; }
  std::int64_t group() const { return query_heads / key_heads; }
  std::int64_t padded_width() const { return padded(width); }
  std::int64_t padded_hidden() const { return padded(hidden); }
  std::int64_t pair_tile() const { return kBlock * padded_width(); }
  std::int64_t hidden_tile() const { return kBlock * padded_hidden(); }
  // One matrix of a net, padded.
  std::int64_t matrix() const { return padded_width() * padded_hidden(); }
  RowChunks chunks() const { return {tokens(), 4 * kBlock, 32}; }
};

// Where things lie in the workspace, in elements: the nets' matrices, padded and in both layouts;
// one scratch area per thread; one area of weight gradients per chunk and net (backward only).
struct CouplingWorkspace {
  std::int64_t scratch_begin, scratch_size, parts_begin, part_size, size;

  CouplingWorkspace(const CouplingSizes& s, std::int64_t threads, bool backward)
      : scratch_begin(s.nets * 4 * s.matrix()),
        scratch_size(backward ? (s.steps + 1) * 2 * s.pair_tile() + (s.steps + 2) * s.hidden_tile()
                              : 2 * s.pair_tile() + 2 * s.hidden_tile()),
        parts_begin(scratch_begin + threads * scratch_size),
        part_size(backward ? 2 * s.matrix() + 16 : 0),
        size(parts_begin + std::max<std::int64_t>(1, s.chunks().count) * s.nets * part_size) {}
};

// q, k and their gradients: [B, T, H, D], last stride 1. w1 [G, h, D], w2 [G, D, h], dt [G]: no
// gaps. The number of threads that the workspace was sized for is the most a kernel uses.
struct CouplingKernels {
  void (*forward)(const CouplingSizes& sizes, ConstView q, ConstView k, ConstView w1, ConstView w2,
                  ConstView dt, View q_out, View k_out, View workspace, std::int64_t threads);

  struct Gradients {
    ConstView q_out, k_out;  // given; null data: zero
    View q, k, w1, w2, dt;   // wanted; null data: not asked for
    bool add_w1, add_w2, add_dt;
  };
  void (*backward)(const CouplingSizes& sizes, ConstView q, ConstView k, ConstView w1, ConstView w2,
                   ConstView dt, const Gradients& gradients, View workspace, std::int64_t threads);
};

extern const CouplingKernels coupling_euler_cpu;

}  // namespace duet
