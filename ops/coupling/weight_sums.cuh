// The gradients of a net's matrices, summed over the tokens of a block: dW1 = g^T x and
// dW2_o^T = a^T gy_o, each [hidden, width]. A thread holds 4 x 4 of them at a time; where there are
// fewer such squares than threads, several share one and take every n-th token each.
#pragma once

#include "ops/coupling/net.cuh"

namespace duet::coupling {

// What one stage leaves in shared memory: g and a, of one stride; x and gy_o, [tokens, kWidth] one
// after another.
struct StageTiles {
  UnitTile g, a;
  float* wide;
};

// kSquares: of a thread, held in registers to the end if that is enough for all matrices; else they
// pass over the tile as often as it takes, and add up in the part itself.
template <int kWidth, int kSquares>
class WeightSums {
  using F = Fragment<kWidth>;
  static constexpr int kSlots = kThreads / F::kLanes;

 public:
  // part: [matrices, hidden, kWidth], this block's own. hidden: padded.
  __device__ WeightSums(int matrices, int hidden, float* part)
      : groups_(matrices * (hidden / 4)),
        hidden_(hidden),
        shares_(0 < groups_ && groups_ < kSlots ? kSlots / groups_ : 1),
        part_(part) {
    if (in_registers()) return;
    for (int group = slot(); group < groups_; group += kSlots) {
      for (int i = 0; i < 4; ++i) *place(group, i) = make_float4(0, 0, 0, 0);
    }
  }

  // Requires: a barrier since the tiles were written, and one before they are written again.
  __device__ __forceinline__ void add(const StageTiles& tiles, int count) {
    if (in_registers()) return add_from(0, tiles, count);
    for (int first = 0; first < groups_; first += kSquares * kSlots) {
      add_from(first, tiles, count);
      for (int n = 0; n < kSquares; ++n) {
        const int group = first + slot() + n * kSlots;
        for (int i = 0; i < 4; ++i) {
          float* s = sums_[n][i];
          if (group < groups_) {
            const float4 old = *place(group, i);
            *place(group, i) = make_float4(old.x + s[0], old.y + s[1], old.z + s[2], old.w + s[3]);
          }
          s[0] = s[1] = s[2] = s[3] = 0;
        }
      }
    }
  }

  // Brings the sums to the part. scratch: 16 floats of shared memory for each thread.
  // Requires: a barrier since scratch was last read; whoever uses it next needs one as well.
  __device__ __forceinline__ void finish(float* scratch) {
    if (!in_registers()) return;
    if (shares_ > 1) {
      for (int e = 0; e < 16; ++e) {
        scratch[e * kThreads + static_cast<int>(threadIdx.x)] = sums_[0][e / 4][e % 4];
      }
      __syncthreads();
      for (int share = 1; share < shares_ && slot() < groups_; ++share) {
        const int other = static_cast<int>(threadIdx.x) + share * groups_ * F::kLanes;
        for (int e = 0; e < 16; ++e) sums_[0][e / 4][e % 4] += scratch[e * kThreads + other];
      }
    }
    for (int n = 0; n < kSquares; ++n) {
      const int group = slot() + n * kSlots;
      for (int i = 0; i < 4 && group < groups_; ++i) {
        const float* s = sums_[n][i];
        *place(group, i) = make_float4(s[0], s[1], s[2], s[3]);
      }
    }
  }

 private:
  __device__ static int slot() { return static_cast<int>(threadIdx.x) / F::kLanes; }
  __device__ bool in_registers() const { return groups_ <= kSquares * kSlots; }
  // Four rows of a matrix are a group: row i of it, at this thread's columns.
  __device__ float4* place(int group, int i) const {
    return reinterpret_cast<float4*>(part_ + (4 * group + i) * kWidth + F::column());
  }

  __device__ __forceinline__ void add_from(int first, const StageTiles& tiles, int count) {
    const int groups_of_matrix = hidden_ / 4;
    for (int n = 0; n < kSquares; ++n) {
      int group = first + slot() + n * kSlots, share = 0;
      if (shares_ > 1) {
        if (n > 0) break;
        share = group / groups_;
        group %= groups_;
      }
      if (group >= groups_ || share >= shares_) continue;
      const int matrix = group / groups_of_matrix, unit = 4 * (group % groups_of_matrix);
      const UnitTile units{matrix == 0 ? tiles.g.data : tiles.a.data, tiles.g.stride};
      const float* columns = tiles.wide + matrix * F::kTokens * kWidth + F::column();
      for (int token = share; token < count; token += shares_) {
        const float4 u = load4(units.row(token) + unit), v = load4(columns + token * kWidth);
        add_row(u.x, v, sums_[n][0]);
        add_row(u.y, v, sums_[n][1]);
        add_row(u.z, v, sums_[n][2]);
        add_row(u.w, v, sums_[n][3]);
      }
    }
  }
  __device__ static __forceinline__ void add_row(float u, const float4& v, float (&sums)[4]) {
    sums[0] += u * v.x;
    sums[1] += u * v.y;
    sums[2] += u * v.z;
    sums[3] += u * v.w;
  }

  int groups_, hidden_, shares_;
  float* part_;
  float sums_[kSquares][4][4] = {};
};

// A fragment in shared memory, [tokens, kWidth].
template <int kWidth>
__device__ __forceinline__ void put_wide(const Fragment<kWidth>& x, float* tile) {
  using F = Fragment<kWidth>;
  for (int r = 0; r < F::kRows; ++r) {
    *reinterpret_cast<float4*>(tile + (F::row() + r) * kWidth + F::column()) =
        make_float4(x.at[r][0], x.at[r][1], x.at[r][2], x.at[r][3]);
  }
}
// This thread's own part of it.
template <int kWidth>
__device__ __forceinline__ Fragment<kWidth> get_wide(const float* tile) {
  using F = Fragment<kWidth>;
  F x;
  for (int r = 0; r < F::kRows; ++r) {
    const float4 v = load4(tile + (F::row() + r) * kWidth + F::column());
    x.at[r][0] = v.x;
    x.at[r][1] = v.y;
    x.at[r][2] = v.z;
    x.at[r][3] = v.w;
  }
  return x;
}

}  // namespace duet::coupling
