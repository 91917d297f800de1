// A tile of tokens in the registers of a block, and its way to and from tensors. A token's row lies
// in neighbouring lanes of one warp, four columns in each, so that what happens to a token needs no
// other warp.
#pragma once

#include "ops/coupling/coupling.h"
#include "runtime/cuda/block.cuh"

namespace duet::coupling {

inline constexpr int kThreads = 128;

// Column 4 * (thread % kLanes) + i of row kRows * (thread / kLanes) + r is at[r][i]. Columns from
// the head's width on, and rows from the tile's count on, are zero where a fragment is loaded.
template <int kWidth>
struct Fragment {
  static constexpr int kLanes = kWidth / 4;
  static constexpr int kRows = kWidth >= 64 ? 4 : kWidth / 16;
  static constexpr int kTokens = kThreads / kLanes * kRows;
  static_assert(kTokens == CouplingCudaLayout::tile_tokens(kWidth));

  float at[kRows][4];

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kLanes; }
  __device__ static int column() { return 4 * lane(); }
  __device__ static int row() { return kRows * (static_cast<int>(threadIdx.x) / kLanes); }

  // f(element of this, elements of others at the same place)
  template <class F, class... Others>
  __device__ __forceinline__ void each(F f, const Others&... others) {
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < 4; ++i) f(at[r][i], others.at[r][i]...);
    }
  }
};

// Tokens [first, first + count) of one key head, counted through all batches.
struct TokenTile {
  unsigned batch, time;  // of the first token
  unsigned length;       // tokens of a batch
  int head, count;

  struct Place {
    unsigned batch, time;
  };
  __device__ __forceinline__ Place place(int index) const {
    const unsigned at = time + static_cast<unsigned>(index);
    if (at < length) return {batch, at};
    return {batch + at / length, at % length};
  }
};

// The rows [D] of a [B, T, H, D] view. Null data: zeros to load, nothing to store.
struct Rows {
  float* data = nullptr;
  std::int64_t batch_stride = 0, time_stride = 0, head_stride = 0;
  int width = 0;
  bool vector = false;  // rows are whole, aligned float4
  // [T, 2, D / 2], aligned float4: the rows lie rotated by these cosines and sines (RoPE), and
  // fragments hold them rotated back. Null: they lie as they are.
  const float* angles = nullptr;

  Rows() = default;
  explicit Rows(const ConstView& v, const float* rotation = nullptr)
      : data(const_cast<float*>(v.as<float>())), angles(rotation) {
    if (data == nullptr) return;
    batch_stride = v.stride(0);
    time_stride = v.stride(1);
    head_stride = v.stride(2);
    width = static_cast<int>(v.size(3));
    const auto aligned = [](std::int64_t n) { return n % 4 == 0; };
    vector = aligned(width) && aligned(batch_stride) && aligned(time_stride) &&
             aligned(head_stride) && reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  }

  __device__ __forceinline__ float* row(const TokenTile& tile, int index, int head) const {
    const TokenTile::Place at = tile.place(index);
    return data + at.batch * batch_stride + at.time * time_stride + head * head_stride;
  }
};

// x1 = x1 cos - x2 sin ; x2 = x2 cos + x1 sin for the columns x1 of the first half and x2, half a
// head further, which another lane of the warp holds. With sign -1 back again.
template <int kWidth>
__device__ __forceinline__ void rotate(Fragment<kWidth>& x, const Rows& rows, const TokenTile& tile,
                                       float sign) {
  using F = Fragment<kWidth>;
  const int column = F::column(), half = rows.width / 2;
  const bool inside = column < rows.width, second = column >= half;
  const int partner = !inside ? F::lane() : (second ? column - half : column + half) / 4;
  const float* angles = rows.angles + (second ? column - half : column);
  const float sin_sign = second ? sign : -sign;
  for (int r = 0; r < F::kRows; ++r) {
    float other[4];
    for (int i = 0; i < 4; ++i) {
      other[i] = __shfl_sync(cuda::kFullMask, x.at[r][i], partner, F::kLanes);
    }
    const int row = F::row() + r;
    if (row >= tile.count || !inside) continue;
    const float* p = angles + std::int64_t{tile.place(row).time} * rows.width;
    const float4 c = *reinterpret_cast<const float4*>(p);
    const float4 s = *reinterpret_cast<const float4*>(p + half);
    const float cos[4] = {c.x, c.y, c.z, c.w}, sin[4] = {s.x, s.y, s.z, s.w};
    for (int i = 0; i < 4; ++i) x.at[r][i] = x.at[r][i] * cos[i] + other[i] * (sin_sign * sin[i]);
  }
}

template <int kWidth>
__device__ __forceinline__ Fragment<kWidth> load(const Rows& from, const TokenTile& tile,
                                                 int head) {
  using F = Fragment<kWidth>;
  F x = {};
  if (from.data == nullptr) return x;
  const int column = F::column();
  for (int r = 0; r < F::kRows; ++r) {
    const int row = F::row() + r;
    if (row >= tile.count || column >= from.width) continue;
    const float* p = from.row(tile, row, head) + column;
    if (from.vector) {
      const float4 v = *reinterpret_cast<const float4*>(p);
      x.at[r][0] = v.x;
      x.at[r][1] = v.y;
      x.at[r][2] = v.z;
      x.at[r][3] = v.w;
    } else {
      for (int i = 0; i < 4; ++i) {
        if (column + i < from.width) x.at[r][i] = p[i];
      }
    }
  }
  if (from.angles != nullptr) rotate(x, from, tile, -1.0F);
  return x;
}

template <int kWidth>
__device__ __forceinline__ void store(Fragment<kWidth> x, const Rows& to, const TokenTile& tile,
                                      int head) {
  using F = Fragment<kWidth>;
  if (to.data == nullptr) return;
  if (to.angles != nullptr) rotate(x, to, tile, 1.0F);
  const int column = F::column();
  for (int r = 0; r < F::kRows; ++r) {
    const int row = F::row() + r;
    if (row >= tile.count || column >= to.width) continue;
    float* p = to.row(tile, row, head) + column;
    if (to.vector) {
      *reinterpret_cast<float4*>(p) = make_float4(x.at[r][0], x.at[r][1], x.at[r][2], x.at[r][3]);
    } else {
      for (int i = 0; i < 4; ++i) {
        if (column + i < to.width) p[i] = x.at[r][i];
      }
    }
  }
}

// factor * sum over the query heads of the tile's group.
template <int kWidth>
__device__ __forceinline__ Fragment<kWidth> load_group(const Rows& from, const TokenTile& tile,
                                                       int group, float factor) {
  Fragment<kWidth> sum = load<kWidth>(from, tile, tile.head * group);
  if (group == 1) return sum;
  for (int m = 1; m < group; ++m) {
    sum.each([](float& s, float x) { s += x; }, load<kWidth>(from, tile, tile.head * group + m));
  }
  sum.each([factor](float& s) { s *= factor; });
  return sum;
}

// to = f(from), head by head of the tile's group: f(float& value) given each element of `from` and
// those of `others` at its place.
template <int kWidth, class F, class... Others>
__device__ __forceinline__ void move_group(const Rows& from, const Rows& to, const TokenTile& tile,
                                           int group, F f, const Others&... others) {
  for (int m = 0; m < group && to.data != nullptr; ++m) {
    Fragment<kWidth> x = load<kWidth>(from, tile, tile.head * group + m);
    x.each(f, others...);
    store(x, to, tile, tile.head * group + m);
  }
}

template <int kWidth>
__device__ __forceinline__ void copy_group(const Rows& from, const Rows& to, const TokenTile& tile,
                                           int group) {
  move_group<kWidth>(from, to, tile, group, [](float&) {});
}

// The share of one block: tiles of the heads that its net moves. Numbers of 32 bits, which divide
// fast: check_kernel_sizes of coupling_ops.cpp refuses more.
struct Work {
  unsigned tokens, length, heads, nets;
  unsigned blocks;  // of a net

  __device__ __forceinline__ unsigned net() const { return blockIdx.x / blocks; }
  // A block takes tile number block(), and every blocks-th from there on.
  __device__ __forceinline__ unsigned block() const { return blockIdx.x % blocks; }
  __device__ __forceinline__ unsigned tiles(unsigned tokens_of_tile) const {
    return (tokens + tokens_of_tile - 1) / tokens_of_tile * (nets == 1 ? heads : 1);
  }
  __device__ __forceinline__ TokenTile tile(unsigned index, unsigned tokens_of_tile) const {
    const unsigned row = nets == 1 ? index / heads : index,
                   head = nets == 1 ? index % heads : net();
    const unsigned first = row * tokens_of_tile, left = tokens - first;
    return {first / length, first % length, length, static_cast<int>(head),
            static_cast<int>(left < tokens_of_tile ? left : tokens_of_tile)};
  }
};

}  // namespace duet::coupling
