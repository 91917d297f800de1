// What the CUDA kernels of attention share. A warp owns 4 * kRows rows of a tile and its lanes lie
// 4 x 8 on it: thread (y, x) holds the rows y + 4 i and, of the other tile, the columns x + 8 c of
// scores, or 4 x .. 4 x + 3 of each 32 of a width. Scores never leave their warp.
#pragma once

#include <algorithm>
#include <utility>

#include "ops/attention/attention.h"
#include "runtime/cuda/block.cuh"

namespace duet::attention_tiles {

inline constexpr int kLaneRows = 4, kLaneColumns = 8;
inline constexpr int kPanelWidth = 4 * kLaneColumns;  // columns of one float4 per lane
inline constexpr int kMaxWarps = 4;
// Rows in shared memory are padded so that 8 lanes reading 8 rows meet all banks.
inline constexpr int kPad = 4, kScorePad = 8;
inline constexpr std::size_t kMaxShared = std::size_t{98} * 1024;  // GPUs have 99 KB for a block
inline constexpr int kEnoughBlocks = 256;  // below that, smaller blocks keep more of a GPU busy
inline constexpr float kLog2E = 1.44269504F, kLn2 = 0.693147181F;

// A thread's part of a tile of scores: what registers and shared memory hold at these widths.
template <int kWidth, int kValueWidth>
struct TileSize {
  static constexpr int kWide = std::max(kWidth, kValueWidth);
  static constexpr int kColumns = kWide <= 64 ? 8 : kWide <= 128 ? 4 : 2;
  static constexpr int kTile = kLaneColumns * kColumns;
  static constexpr int kScoreRow = kTile + kScorePad;
};

// [B, T, H, width] of any strides; by_four: its rows can be read as float4.
struct Operand {
  const float* data;
  std::int64_t batch, time, head, column;
  int width;
  bool by_four;
};
inline Operand operand(const ConstView& x) {
  const auto whole = [&](int dim) { return x.size(dim) <= 1 || x.stride(dim) % 4 == 0; };
  const bool by_four = x.stride(3) == 1 && x.size(3) % 4 == 0 && whole(0) && whole(1) && whole(2) &&
                       reinterpret_cast<std::uintptr_t>(x.data) % sizeof(float4) == 0;
  return {x.as<float>(), x.stride(0), x.stride(1),
          x.stride(2),   x.stride(3), static_cast<int>(x.size(3)),
          by_four};
}

// One head of one sequence: [T, width].
struct Head {
  const float* data;
  std::int64_t time, column;
  int width;
  bool by_four;
};
__device__ inline Head head_of(const Operand& x, int b, int h) {
  return {x.data + b * x.batch + h * x.head, x.time, x.column, x.width, x.by_four};
}

struct Problem {
  Operand q, k, v;
  const std::int32_t* first_visible;
  std::int64_t first_batch, first_time;
  int batch, queries, keys, heads, kv_heads, group;
  bool causal;
  float scale;

  // Query i sees the keys [first_key, last_key).
  __device__ int first_key(int b, int i) const {
    if (first_visible == nullptr) return 0;
    const int first = first_visible[b * first_batch + i * first_time];
    return first > 0 ? first : 0;
  }
  __device__ int last_key(int i) const {
    const int last = causal ? i + 1 + (keys - queries) : keys;
    return last > 0 ? last : 0;
  }
};
inline Problem problem(const AttentionInputs& in) {
  Problem p{};
  p.q = operand(in.q);
  p.k = operand(in.k);
  p.v = operand(in.v);
  if (in.first_visible.data != nullptr) {
    p.first_visible = in.first_visible.as<std::int32_t>();
    p.first_batch = in.first_visible.stride(0);
    p.first_time = in.first_visible.stride(1);
  }
  p.batch = static_cast<int>(in.batch());
  p.queries = static_cast<int>(in.queries());
  p.keys = static_cast<int>(in.keys());
  p.heads = static_cast<int>(in.heads());
  p.kv_heads = static_cast<int>(in.kv_heads());
  p.group = static_cast<int>(in.group());
  p.causal = in.causal;
  p.scale = static_cast<float>(in.scale);
  return p;
}

// Runs f.operator()<kWidth, kValueWidth>() with the smallest widths that hold those of `in`.
template <class F>
void with_widths(const AttentionInputs& in, F&& f) {
  const std::int64_t width = in.width(), value_width = in.value_width();
  if (width <= 32 && value_width <= 32) return f.template operator()<32, 32>();
  if (width <= 32 && value_width <= 64) return f.template operator()<32, 64>();
  if (width <= 64 && value_width <= 64) return f.template operator()<64, 64>();
  if (width <= 64 && value_width <= 128) return f.template operator()<64, 128>();
  if (width <= 128 && value_width <= 128) return f.template operator()<128, 128>();
  return f.template operator()<256, 256>();
}

// Warps of a block for `rows` rows of each of `units` heads: no more than there are rows, and than
// shared memory holds; fewer where that gives more blocks. Results do not depend on it.
template <class Bytes>
int warps_for(std::int64_t units, std::int64_t rows, int warp_rows, Bytes&& shared_bytes) {
  int warps =
      static_cast<int>(std::clamp<std::int64_t>((rows + warp_rows - 1) / warp_rows, 1, kMaxWarps));
  const auto blocks = [&] {
    return units * ((rows + warps * warp_rows - 1) / (warps * warp_rows));
  };
  while (warps > 1 && (shared_bytes(warps) > kMaxShared || blocks() < kEnoughBlocks)) --warps;
  return warps;
}

// The head and the tile of a block, the blocks with the most work of some heads first. All tiles of
// these heads run at about the same time, so that the other side of their products, which each tile
// reads whole, comes from the GPU's cache.
struct Place {
  int unit, tile;
};
__device__ inline Place place_of_block(int units, int tiles, bool last_tile_first) {
  constexpr int kUnits = 16;
  const int block = static_cast<int>(blockIdx.x), first = block / (kUnits * tiles) * kUnits;
  const int here = units - first < kUnits ? units - first : kUnits, at = block - first * tiles;
  const int tile = at / here;
  return {first + at % here, last_tile_first ? tiles - 1 - tile : tile};
}

// Where a thread stands on its warp's tile. Neighbours share a column and every other lane a row,
// so that a 16-byte read of both tiles is a broadcast.
__device__ inline int lane_column() { return cuda::lane() / 2 % kLaneColumns; }
__device__ inline int lane_row() { return cuda::lane() % 2 + cuda::lane() / 16 * 2; }
// Over the 8 lanes that share their rows.
template <class Op, class T>
__device__ inline T row_reduce(T value) {
  for (int offset = 2; offset <= 8; offset *= 2) {
    value = Op{}(value, __shfl_xor_sync(cuda::kFullMask, value, offset));
  }
  return value;
}

struct Min {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

// f(0), f(1), ... f(kTimes - 1), so that arrays indexed by it stay in registers.
template <int kTimes, class F>
__device__ inline void unrolled(F&& f) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) { (f(kIndex), ...); }
  (std::make_integer_sequence<int, kTimes>{});
}

__device__ inline float4 load_four(const Head& x, std::int64_t row, int column) {
  float4 y{0, 0, 0, 0};
  const float* from = x.data + row * x.time + column * x.column;
  if (x.by_four) {
    if (column < x.width) y = *reinterpret_cast<const float4*>(from);
    return y;
  }
  if (column < x.width) y.x = from[0];
  if (column + 1 < x.width) y.y = from[x.column];
  if (column + 2 < x.width) y.z = from[2 * x.column];
  if (column + 3 < x.width) y.w = from[3 * x.column];
  return y;
}

// tile[r][c] = factor * x[first + r][c] for r in [begin, end), else 0; r < rows, c < kWidth.
// By the whole block.
template <int kWidth>
__device__ inline void load_tile(float* tile, const Head& x, int first, int begin, int end,
                                 int rows, float factor) {
  constexpr int kFours = kWidth / 4, kBatch = 4;
  const int threads = static_cast<int>(blockDim.x), n = rows * kFours;
  for (int at = static_cast<int>(threadIdx.x); at < n; at += kBatch * threads) {
    float4 y[kBatch];  // all reads are under way before the first is needed
    for (int u = 0; u < kBatch; ++u) {
      const int i = at + u * threads, r = i / kFours;
      y[u] = float4{0, 0, 0, 0};
      if (i < n && r >= begin && r < end) {
        y[u] = load_four(x, static_cast<std::int64_t>(first) + r, i % kFours * 4);
      }
    }
    for (int u = 0; u < kBatch; ++u) {
      const int i = at + u * threads;
      if (i >= n) break;
      const float4 scaled{factor * y[u].x, factor * y[u].y, factor * y[u].z, factor * y[u].w};
      *reinterpret_cast<float4*>(tile + i / kFours * (kWidth + kPad) + i % kFours * 4) = scaled;
    }
  }
}

__device__ inline float4 four_at(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ inline float part(const float4& x, int i) {
  return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

// s[i][c] = sum_d rows[4 i][d] columns[8 c][d]; both point at the thread's first, with zeros up to
// the next multiple of 4 after `depth`.
template <int kWidth, int kRows, int kColumns>
__device__ inline void scores(const float* rows, const float* columns, int depth,
                              float (&s)[kRows][kColumns]) {
  constexpr int kRow = kWidth + kPad;
  for (int i = 0; i < kRows; ++i) {
    for (int c = 0; c < kColumns; ++c) s[i][c] = 0;
  }
  for (int d = 0; d < depth; d += 4) {
    float4 a[kRows];
    for (int i = 0; i < kRows; ++i) a[i] = four_at(rows + i * kLaneRows * kRow + d);
    for (int c = 0; c < kColumns; ++c) {
      const float4 b = four_at(columns + c * kLaneColumns * kRow + d);
      for (int i = 0; i < kRows; ++i) {
        s[i][c] += a[i].x * b.x;
        s[i][c] += a[i].y * b.y;
        s[i][c] += a[i].z * b.z;
        s[i][c] += a[i].w * b.w;
      }
    }
  }
}

// Hands the warp's scores over to its lanes: to[4 i][8 c] = s[i][c].
template <int kScoreRow, int kRows, int kColumns>
__device__ inline void put_scores(const float (&s)[kRows][kColumns], float* to) {
  for (int i = 0; i < kRows; ++i) {
    for (int c = 0; c < kColumns; ++c) to[i * kLaneRows * kScoreRow + c * kLaneColumns] = s[i][c];
  }
  __syncwarp();
}

// sum[i][4 n + e] += sum_j p[4 i][j] x[j][32 n + e], p in rows of kScoreRow, x of kWidth + kPad;
// both point at the thread's first.
template <int kWidth, int kTile, int kRows>
__device__ inline void add_product(const float* p, const float* x,
                                   float (&sum)[kRows][kWidth / kLaneColumns]) {
  constexpr int kRow = kWidth + kPad, kScoreRow = kTile + kScorePad;
  for (int j = 0; j < kTile; j += 4) {
    float4 a[kRows];
    for (int i = 0; i < kRows; ++i) a[i] = four_at(p + i * kLaneRows * kScoreRow + j);
    unrolled<4>([&](int e) {
      for (int n = 0; n < kWidth / kPanelWidth; ++n) {
        const float4 b = four_at(x + (j + e) * kRow + n * kPanelWidth);
        for (int i = 0; i < kRows; ++i) {
          sum[i][4 * n] += part(a[i], e) * b.x;
          sum[i][4 * n + 1] += part(a[i], e) * b.y;
          sum[i][4 * n + 2] += part(a[i], e) * b.z;
          sum[i][4 * n + 3] += part(a[i], e) * b.w;
        }
      }
    });
  }
}

// row[c] = factor * sum[c] for the thread's columns of a contiguous row of `width`.
template <int kWidth>
__device__ inline void store_row(const float (&sum)[kWidth / kLaneColumns], float factor, int width,
                                 float* row) {
  for (int n = 0; n < kWidth / kPanelWidth; ++n) {
    const int column = n * kPanelWidth + 4 * lane_column();
    const float4 y{factor * sum[4 * n], factor * sum[4 * n + 1], factor * sum[4 * n + 2],
                   factor * sum[4 * n + 3]};
    if (width % 4 == 0) {  // every row starts at a multiple of 16 bytes
      if (column < width) *reinterpret_cast<float4*>(row + column) = y;
      continue;
    }
    for (int e = 0; e < 4; ++e) {
      if (column + e < width) row[column + e] = part(y, e);
    }
  }
}

void backward(const AttentionInputs& in, ConstView out, ConstView lse, ConstView grad_out,
              const AttentionGrads& grads, View workspace);

}  // namespace duet::attention_tiles
