// CUDA attention, forward: a block keeps a tile of queries and walks over the tiles of keys that
// one of them sees, with the softmax done online (attention_tiles.cuh). The few queries of a
// decoding step have a kernel of their own.
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

  // The last tiles of queries see the most keys.
  const Place place = place_of_block(in.batch * in.heads, (in.queries + rows - 1) / rows, true);
  const int query = place.tile * rows, b = place.unit / in.heads, h = place.unit % in.heads;
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

constexpr std::int64_t kDecodeQueries = 4;  // more are left to the tiles
constexpr int kDecodeWarps = 16;
constexpr int kDecodeBatch = 32;  // columns of a key that are read at once

// q, the weights of 32 keys per warp, and what the warps add up: [warps, value_width + 2]
std::size_t decode_bytes(const AttentionInputs& in, int warps) {
  return sizeof(float) * static_cast<std::size_t>(round_up(in.width(), kDecodeBatch) +
                                                  warps * (cuda::kWarp + in.value_width() + 2));
}

// The same for one query and head per block: each warp takes 32 keys in turn, a lane per key for
// the scores, a lane per column (of each 32) for the sum over values. Warps meet at the end.
template <int kPanels>
__global__ void __launch_bounds__(kDecodeWarps* cuda::kWarp)
    attention_decode_kernel(Problem in, float* out, float* lse) {
  constexpr int kKeys = cuda::kWarp, kFours = kDecodeBatch / 4, kAhead = 8;
  GPU_DYN_SHARED(float, q);
  const int warps = static_cast<int>(blockDim.x) / cuda::kWarp, lane = cuda::lane();
  const int padded = (in.q.width + kDecodeBatch - 1) / kDecodeBatch * kDecodeBatch;
  const int value_width = in.v.width;
  float* p_of_warp = q + padded + cuda::warp() * kKeys;
  float* max_of_warp = q + padded + warps * kKeys;
  float* weight_of_warp = max_of_warp + warps;
  float* sum_of_warp = weight_of_warp + warps;
  const int block = static_cast<int>(blockIdx.x), query = block % in.queries;
  const int h = block / in.queries % in.heads, b = block / in.queries / in.heads;
  const int first = in.first_key(b, query), last = in.last_key(query);
  const Head q_head = head_of(in.q, b, h), k = head_of(in.k, b, h / in.group);
  const Head v = head_of(in.v, b, h / in.group);
  for (int c = static_cast<int>(threadIdx.x); c < padded; c += static_cast<int>(blockDim.x)) {
    const float factor = in.scale * kLog2E;
    q[c] = c < in.q.width ? factor * q_head.data[query * q_head.time + c * q_head.column] : 0.0F;
  }
  __syncthreads();

  float sum[kPanels] = {};
  float max = -INFINITY, weight = 0;
  for (int chunk = first / kKeys * kKeys + cuda::warp() * kKeys; chunk < last;
       chunk += warps * kKeys) {
    const bool visible = chunk + lane >= first && chunk + lane < last;
    float s = 0;
    for (int d = 0; visible && d < in.q.width; d += kDecodeBatch) {
      float4 x[kFours];  // all reads are under way before the first is needed
      for (int u = 0; u < kFours; ++u) x[u] = load_four(k, chunk + lane, d + 4 * u);
      for (int u = 0; u < kFours; ++u) {
        const float4 y = four_at(q + d + 4 * u);
        s += (x[u].x * y.x + x[u].y * y.y) + (x[u].z * y.z + x[u].w * y.w);
      }
    }
    const float top = cuda::warp_reduce<cuda::Max>(visible ? fmaxf(max, s) : max);
    const float shrink = top == max ? 1.0F : exp2f(max - top);
    const float p = visible ? exp2f(s - top) : 0.0F;
    max = top;
    weight = weight * shrink + p;
    for (float& z : sum) z *= shrink;
    p_of_warp[lane] = p;
    __syncwarp();
    const int begin = first > chunk ? first - chunk : 0;
    const int end = last - chunk < kKeys ? last - chunk : kKeys;
    for (int j = begin; j < end; j += kAhead) {
      float x[kAhead][kPanels];
      for (int u = 0; u < kAhead; ++u) {
        const float* row = v.data + static_cast<std::int64_t>(chunk + j + u) * v.time;
        for (int n = 0; n < kPanels; ++n) {
          const int c = n * cuda::kWarp + lane;
          x[u][n] = j + u < end && c < value_width ? row[c * v.column] : 0.0F;
        }
      }
      for (int u = 0; u < kAhead; ++u) {
        const float of_key = j + u < end ? p_of_warp[j + u] : 0.0F;
        for (int n = 0; n < kPanels; ++n) sum[n] += of_key * x[u][n];
      }
    }
    __syncwarp();
  }

  weight = cuda::warp_reduce<cuda::Sum>(weight);
  if (lane == 0) {
    max_of_warp[cuda::warp()] = max;
    weight_of_warp[cuda::warp()] = weight;
  }
  for (int n = 0; n < kPanels; ++n) {
    const int c = n * cuda::kWarp + lane;
    if (c < value_width) sum_of_warp[cuda::warp() * value_width + c] = sum[n];
  }
  __syncthreads();
  float top = -INFINITY, total = 0;
  for (int w = 0; w < warps; ++w) top = fmaxf(top, max_of_warp[w]);
  const auto factor = [&](int w) {
    return max_of_warp[w] == top ? 1.0F : exp2f(max_of_warp[w] - top);
  };
  for (int w = 0; w < warps; ++w) total += factor(w) * weight_of_warp[w];
  const bool seen = total != 0;
  const std::int64_t row = (static_cast<std::int64_t>(b) * in.queries + query) * in.heads + h;
  for (int c = static_cast<int>(threadIdx.x); c < value_width; c += static_cast<int>(blockDim.x)) {
    float y = 0;
    for (int w = 0; w < warps; ++w) y += factor(w) * sum_of_warp[w * value_width + c];
    out[row * value_width + c] = seen ? y / total : 0.0F;
  }
  if (threadIdx.x == 0) {
    lse[(static_cast<std::int64_t>(b) * in.heads + h) * in.queries + query] =
        seen ? kLn2 * top + logf(total) : 0.0F;
  }
}

void decode(const AttentionInputs& in, float* out, float* lse) {
  const std::int64_t chunks = (in.keys() + cuda::kWarp - 1) / cuda::kWarp;
  const int warps = static_cast<int>(std::clamp<std::int64_t>(chunks, 1, kDecodeWarps));
  const std::int64_t rows = in.batch() * in.heads() * in.queries();
  with_widths(in, [&]<int, int kValueWidth>() {
    GPU_LAUNCH((attention_decode_kernel<kValueWidth / cuda::kWarp>), static_cast<unsigned>(rows),
               static_cast<unsigned>(warps * cuda::kWarp), decode_bytes(in, warps), problem(in),
               out, lse);
  });
}

void forward(const AttentionInputs& in, View out, View lse, View) {
  const std::int64_t units = in.batch() * in.heads();
  if (units == 0 || in.queries() == 0) return;
  if (in.queries() <= kDecodeQueries) return decode(in, out.as<float>(), lse.as<float>());
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
