// CUDA attention, forward: a block keeps a tile of queries and walks over the tiles of keys that
// one of them sees, with the softmax done online. See attention_tiles.cuh.
#include "ops/attention/attention_tiles.cuh"

namespace duet {
namespace {

using namespace attention_tiles;

constexpr int kRows = 4;  // of a thread
constexpr int kWarpRows = kRows * kLaneRows;

template <int kWidth, int kValueWidth>
constexpr std::size_t forward_bytes(int warps) {
  using Size = TileSize<kWidth, kValueWidth>;
  const int rows = warps * kWarpRows;
  return sizeof(float) * static_cast<std::size_t>(rows * (kWidth + kPad + Size::kScoreRow) +
                                                  Size::kTile * (kWidth + kValueWidth + 2 * kPad));
}

// s_ij = scale log2(e) q_i . k_j ; p_ij = 2^(s_ij - m_i), m_i the largest visible s_ij so far
// out_i = sum_j p_ij v_j / sum_j p_ij ; lse_i = ln2 m_i + log sum_j p_ij
template <int kWidth, int kValueWidth>
__global__ void __launch_bounds__(kMaxWarps* cuda::kWarp)
    attention_forward_kernel(Problem in, float* out, float* lse) {
  using Size = TileSize<kWidth, kValueWidth>;
  constexpr int kTile = Size::kTile, kColumns = Size::kColumns, kScoreRow = Size::kScoreRow;
  GPU_SHARED(int, first_of_warp, [kMaxWarps]);
  GPU_DYN_SHARED(float, q_tile);  // [rows, kWidth + kPad]
  const int warps = static_cast<int>(blockDim.x) / cuda::kWarp, rows = warps * kWarpRows;
  float* k_tile = q_tile + rows * (kWidth + kPad);
  float* v_tile = k_tile + kTile * (kWidth + kPad);
  float* p_tile = v_tile + kTile * (kValueWidth + kPad);

  // The last tiles of queries see the most keys: they start first.
  const int units = in.batch * in.heads, block = static_cast<int>(blockIdx.x);
  const int tiles = (in.queries + rows - 1) / rows;
  const int query = (tiles - 1 - block / units) * rows, b = block % units / in.heads;
  const int h = block % in.heads;
  const int x = lane_column(), warp_row = cuda::warp() * kWarpRows, y = warp_row + lane_row();
  const int query_rows = Min{}(rows, in.queries - query);

  load_tile<kWidth>(q_tile, head_of(in.q, b, h), query, 0, query_rows, rows, in.scale * kLog2E);
  int first[kRows], last[kRows];
  int warp_first = in.keys;
  for (int i = 0; i < kRows; ++i) {
    const int r = y + i * kLaneRows;
    first[i] = r < query_rows ? in.first_key(b, query + r) : in.keys;
    last[i] = r < query_rows ? in.last_key(query + r) : 0;
    warp_first = Min{}(warp_first, first[i]);
  }
  warp_first = cuda::warp_reduce<Min>(warp_first);
  if (cuda::lane() == 0) first_of_warp[cuda::warp()] = warp_first;
  __syncthreads();
  int begin = warp_first;
  for (int w = 0; w < warps; ++w) begin = Min{}(begin, first_of_warp[w]);
  const int end = in.last_key(query + query_rows - 1);
  const int warp_rows = Min{}(kWarpRows, query_rows - warp_row);
  const int warp_last = warp_rows > 0 ? in.last_key(query + warp_row + warp_rows - 1) : 0;

  const Head k = head_of(in.k, b, h / in.group), v = head_of(in.v, b, h / in.group);
  float sum[kRows][kValueWidth / kLaneColumns] = {};
  float max[kRows], weight[kRows];  // weight: this thread's part of sum_j p_ij
  for (int i = 0; i < kRows; ++i) {
    max[i] = -INFINITY;
    weight[i] = 0;
  }
  for (int key = begin / kTile * kTile; key < end; key += kTile) {
    load_tile<kWidth>(k_tile, k, key, begin - key, end - key, kTile, 1);
    load_tile<kValueWidth>(v_tile, v, key, begin - key, end - key, kTile, 1);
    __syncthreads();
    if (key < warp_last && key + kTile > warp_first) {
      float s[kRows][kColumns];
      scores<kWidth>(q_tile + y * (kWidth + kPad), k_tile + x * (kWidth + kPad), in.q.width, s);
      for (int i = 0; i < kRows; ++i) {
        const int from = first[i] - key - x, to = last[i] - key - x;
        float top = max[i];
        for (int c = 0; c < kColumns; ++c) {
          const int column = c * kLaneColumns;
          if (column >= from && column < to) top = fmaxf(top, s[i][c]);
        }
        top = row_reduce<cuda::Max>(top);
        const float shrink = top == max[i] ? 1.0F : exp2f(max[i] - top);
        max[i] = top;
        weight[i] *= shrink;
        for (int c = 0; c < kColumns; ++c) {
          const int column = c * kLaneColumns;
          s[i][c] = column >= from && column < to ? exp2f(s[i][c] - top) : 0.0F;
          weight[i] += s[i][c];
        }
        for (float& z : sum[i]) z *= shrink;
      }
      put_scores<kScoreRow>(s, p_tile + y * kScoreRow + x);
      add_product<kValueWidth, kTile>(p_tile + y * kScoreRow, v_tile + 4 * x, sum);
    }
    __syncthreads();
  }

  unrolled<kRows>([&](int i) {
    const float total = row_reduce<cuda::Sum>(weight[i]);
    const int r = y + i * kLaneRows;
    if (r >= query_rows) return;
    const bool seen = total != 0;  // at least 1, or NaN, once a key was seen
    if (!seen) {
      for (float& z : sum[i]) z = 0;
    }
    const std::int64_t at = static_cast<std::int64_t>(b) * in.queries + query + r;
    store_row<kValueWidth>(sum[i], seen ? 1 / total : 0.0F, in.v.width,
                           out + (at * in.heads + h) * in.v.width);
    if (x == 0) {
      lse[(static_cast<std::int64_t>(b) * in.heads + h) * in.queries + query + r] =
          seen ? kLn2 * max[i] + logf(total) : 0.0F;
    }
  });
}

void forward(const AttentionInputs& in, View out, View lse, View) {
  const std::int64_t units = in.batch() * in.heads();
  if (units == 0 || in.queries() == 0) return;
  with_widths(in, [&]<int kWidth, int kValueWidth>() {
    const auto bytes = [](int warps) { return forward_bytes<kWidth, kValueWidth>(warps); };
    const int warps = warps_for(units, in.queries(), kWarpRows, bytes);
    const std::int64_t rows = warps * kWarpRows, tiles = (in.queries() + rows - 1) / rows;
    GPU_LAUNCH((attention_forward_kernel<kWidth, kValueWidth>),
               static_cast<unsigned>(units * tiles), static_cast<unsigned>(warps * cuda::kWarp),
               bytes(warps), problem(in), out.as<float>(), lse.as<float>());
  });
}

}  // namespace

const AttentionKernels attention_cuda{forward, attention_tiles::backward};

}  // namespace duet
