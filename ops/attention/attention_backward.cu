// CUDA attention, backward: one kernel over tiles of queries for dq and delta, one over tiles of
// keys for dk and dv; both compute the weights p again from lse. See attention_tiles.cuh.
#include "ops/attention/attention_tiles.cuh"

namespace duet::attention_tiles {
namespace {

// Rows of a thread: of the widest heads, registers hold the sums of two.
template <int kWidth, int kValueWidth>
constexpr int kThreadRows = TileSize<kWidth, kValueWidth>::kWide <= 128 ? 4 : 2;
template <int kWidth, int kValueWidth>
constexpr int kWarpRows = kThreadRows<kWidth, kValueWidth>* kLaneRows;

// A tile of rows that stays, one of columns that passes by, each of both widths; and scores.
template <int kWidth, int kValueWidth>
constexpr std::size_t backward_bytes(int warps) {
  using Size = TileSize<kWidth, kValueWidth>;
  const int rows = warps * kWarpRows<kWidth, kValueWidth>;
  return sizeof(float) *
         static_cast<std::size_t>((rows + Size::kTile) * (kWidth + kValueWidth + 2 * kPad) +
                                  rows * Size::kScoreRow);
}

// out and its gradient; lse and delta [B, Hq, Tq].
struct OutputGradient {
  const float* out;
  const float* lse;
  Operand grad;
  float* delta;
};

// delta = sum_c grad(c) out[c], by the 8 lanes of a row.
template <class Grad>
__device__ inline float row_delta(const float* out, int width, Grad&& grad) {
  float sum = 0;
  for (int c = lane_column(); c < width; c += kLaneColumns) sum += grad(c) * out[c];
  return row_reduce<cuda::Sum>(sum);
}

// For a backward pass without dq, whose kernel else writes delta.
__global__ void attention_delta_kernel(Problem in, OutputGradient y) {
  const std::int64_t rows = static_cast<std::int64_t>(in.batch) * in.heads * in.queries;
  const std::int64_t at = cuda::global_thread() / cuda::kWarp * kLaneRows + lane_row();
  const std::int64_t row = at < rows ? at : rows - 1;  // all lanes take part in the sums
  const int i = static_cast<int>(row % in.queries), unit = static_cast<int>(row / in.queries);
  const int b = unit / in.heads, h = unit % in.heads;
  const Head grad = head_of(y.grad, b, h);
  const float* out =
      y.out + ((static_cast<std::int64_t>(b) * in.queries + i) * in.heads + h) * grad.width;
  const float delta =
      row_delta(out, grad.width, [&](int c) { return grad.data[i * grad.time + c * grad.column]; });
  if (at < rows && lane_column() == 0) y.delta[at] = delta;
}

// ds_ij = p_ij (do_i . v_j - delta_i) ; dq_i = scale sum_j ds_ij k_j
template <int kWidth, int kValueWidth>
__global__ void __launch_bounds__(kMaxWarps* cuda::kWarp)
    attention_dq_kernel(Problem in, OutputGradient y, float* dq) {
  using Size = TileSize<kWidth, kValueWidth>;
  constexpr int kTile = Size::kTile, kColumns = Size::kColumns, kScoreRow = Size::kScoreRow;
  constexpr int kRows = kThreadRows<kWidth, kValueWidth>;
  constexpr int kRowsOfWarp = kWarpRows<kWidth, kValueWidth>;
  GPU_SHARED(int, first_of_warp, [kMaxWarps]);
  GPU_DYN_SHARED(float, q_tile);  // [rows, kWidth + kPad]
  const int warps = static_cast<int>(blockDim.x) / cuda::kWarp, rows = warps * kRowsOfWarp;
  float* grad_tile = q_tile + rows * (kWidth + kPad);
  float* k_tile = grad_tile + rows * (kValueWidth + kPad);
  float* v_tile = k_tile + kTile * (kWidth + kPad);
  float* ds_tile = v_tile + kTile * (kValueWidth + kPad);

  const Place place = place_of_block(in.batch * in.heads, (in.queries + rows - 1) / rows, true);
  const int query = place.tile * rows, b = place.unit / in.heads, h = place.unit % in.heads;
  const int x = lane_column(), warp_row = cuda::warp() * kRowsOfWarp, row = warp_row + lane_row();
  const int query_rows = Min{}(rows, in.queries - query);

  load_tile<kWidth>(q_tile, head_of(in.q, b, h), query, 0, query_rows, rows, in.scale * kLog2E);
  load_tile<kValueWidth>(grad_tile, head_of(y.grad, b, h), query, 0, query_rows, rows, 1);
  int first[kRows], last[kRows];
  int warp_first = in.keys;
  for (int i = 0; i < kRows; ++i) {
    const int r = row + i * kLaneRows;
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
  const int warp_rows = Min{}(kRowsOfWarp, query_rows - warp_row);
  const int warp_last = warp_rows > 0 ? in.last_key(query + warp_row + warp_rows - 1) : 0;

  float lse[kRows], delta[kRows];
  for (int i = 0; i < kRows; ++i) {
    const int r = row + i * kLaneRows, at = query + Min{}(r, query_rows - 1);
    const std::int64_t of_row = (static_cast<std::int64_t>(b) * in.heads + h) * in.queries + at;
    const float* grad = grad_tile + r * (kValueWidth + kPad);
    lse[i] = kLog2E * y.lse[of_row];
    delta[i] = row_delta(
        y.out + ((static_cast<std::int64_t>(b) * in.queries + at) * in.heads + h) * in.v.width,
        in.v.width, [&](int c) { return grad[c]; });
    if (x == 0 && r < query_rows) y.delta[of_row] = delta[i];
  }

  const Head k = head_of(in.k, b, h / in.group), v = head_of(in.v, b, h / in.group);
  float sum[kRows][kWidth / kLaneColumns] = {};
  for (int key = begin / kTile * kTile; key < end; key += kTile) {
    load_tile<kWidth>(k_tile, k, key, begin - key, end - key, kTile, 1);
    load_tile<kValueWidth>(v_tile, v, key, begin - key, end - key, kTile, 1);
    __syncthreads();
    if (key < warp_last && key + kTile > warp_first) {
      float s[kRows][kColumns], ds[kRows][kColumns];
      scores<kWidth>(q_tile + row * (kWidth + kPad), k_tile + x * (kWidth + kPad), in.q.width, s);
      scores<kValueWidth>(grad_tile + row * (kValueWidth + kPad), v_tile + x * (kValueWidth + kPad),
                          in.v.width, ds);
      for (int i = 0; i < kRows; ++i) {
        const int from = first[i] - key - x, to = last[i] - key - x;
        for (int c = 0; c < kColumns; ++c) {
          const int column = c * kLaneColumns;
          const float value = exp2f(s[i][c] - lse[i]) * (ds[i][c] - delta[i]);
          ds[i][c] = column >= from && column < to ? value : 0.0F;
        }
      }
      put_scores<kScoreRow>(ds, ds_tile + row * kScoreRow + x);
      add_product<kWidth, kTile>(ds_tile + row * kScoreRow, k_tile + 4 * x, sum);
    }
    __syncthreads();
  }
  unrolled<kRows>([&](int i) {
    const int r = row + i * kLaneRows;
    if (r >= query_rows) return;
    const std::int64_t at = static_cast<std::int64_t>(b) * in.queries + query + r;
    store_row<kWidth>(sum[i], in.scale, in.q.width, dq + (at * in.heads + h) * in.q.width);
  });
}

// dv_j = sum_i p_ij do_i ; dk_j = scale sum_i ds_ij q_i, i over the queries of the whole group.
// Scores are kept transposed: their rows are keys.
template <int kWidth, int kValueWidth>
__global__ void __launch_bounds__(kMaxWarps* cuda::kWarp)
    attention_dkv_kernel(Problem in, OutputGradient y, float* dk, float* dv) {
  using Size = TileSize<kWidth, kValueWidth>;
  constexpr int kTile = Size::kTile, kColumns = Size::kColumns, kScoreRow = Size::kScoreRow;
  constexpr int kRows = kThreadRows<kWidth, kValueWidth>;
  constexpr int kRowsOfWarp = kWarpRows<kWidth, kValueWidth>;
  GPU_SHARED(float, lse, [kTile]);
  GPU_SHARED(float, delta, [kTile]);
  GPU_SHARED(int, first, [kTile]);
  GPU_SHARED(int, last, [kTile]);
  GPU_DYN_SHARED(float, k_tile);  // [rows, kWidth + kPad]
  const int warps = static_cast<int>(blockDim.x) / cuda::kWarp, rows = warps * kRowsOfWarp;
  float* v_tile = k_tile + rows * (kWidth + kPad);
  float* q_tile = v_tile + rows * (kValueWidth + kPad);
  float* grad_tile = q_tile + kTile * (kWidth + kPad);
  float* p_tile = grad_tile + kTile * (kValueWidth + kPad);

  // The first tiles of keys are seen by the most queries.
  const Place place = place_of_block(in.batch * in.kv_heads, (in.keys + rows - 1) / rows, false);
  const int key = place.tile * rows, b = place.unit / in.kv_heads;
  const int kv_head = place.unit % in.kv_heads;
  const int x = lane_column(), warp_row = cuda::warp() * kRowsOfWarp, row = warp_row + lane_row();
  const int key_rows = Min{}(rows, in.keys - key);
  load_tile<kWidth>(k_tile, head_of(in.k, b, kv_head), key, 0, key_rows, rows, 1);
  load_tile<kValueWidth>(v_tile, head_of(in.v, b, kv_head), key, 0, key_rows, rows, 1);

  // The first query that sees a key of the tile.
  int begin = in.causal ? key - (in.keys - in.queries) : 0;
  if (begin < 0) begin = 0;
  float sum_k[kRows][kWidth / kLaneColumns] = {};
  float sum_v[kRows][kValueWidth / kLaneColumns] = {};
  for (int g = 0; g < in.group; ++g) {
    const int h = kv_head * in.group + g;
    const Head q = head_of(in.q, b, h), grad = head_of(y.grad, b, h);
    for (int query = begin / kTile * kTile; query < in.queries; query += kTile) {
      const int columns = Min{}(kTile, in.queries - query);
      if (in.first_visible != nullptr) {
        bool sees = false;
        for (int c = cuda::lane(); c < columns; c += cuda::kWarp) {
          const int from = in.first_key(b, query + c), to = in.last_key(query + c);
          sees = sees || (from < key + key_rows && to > key && from < to);
        }
        if (__ballot_sync(cuda::kFullMask, sees) == 0) continue;  // all warps agree
      }
      for (int c = static_cast<int>(threadIdx.x); c < kTile; c += static_cast<int>(blockDim.x)) {
        const bool inside = c < columns;
        const std::int64_t at =
            (static_cast<std::int64_t>(b) * in.heads + h) * in.queries + query + c;
        lse[c] = inside ? kLog2E * y.lse[at] : 0.0F;
        delta[c] = inside ? y.delta[at] : 0.0F;
        first[c] = inside ? in.first_key(b, query + c) : 0;
        last[c] = inside ? in.last_key(query + c) : 0;
      }
      load_tile<kWidth>(q_tile, q, query, begin - query, columns, kTile, in.scale * kLog2E);
      load_tile<kValueWidth>(grad_tile, grad, query, begin - query, columns, kTile, 1);
      __syncthreads();
      if (in.last_key(query + columns - 1) > key + warp_row) {
        float p[kRows][kColumns], ds[kRows][kColumns];
        scores<kWidth>(k_tile + row * (kWidth + kPad), q_tile + x * (kWidth + kPad), in.q.width, p);
        scores<kValueWidth>(v_tile + row * (kValueWidth + kPad),
                            grad_tile + x * (kValueWidth + kPad), in.v.width, ds);
        for (int c = 0; c < kColumns; ++c) {
          const int column = x + c * kLaneColumns;
          const int from = first[column] - key - row, to = last[column] - key - row;
          const float row_lse = lse[column], row_delta = delta[column];
          for (int i = 0; i < kRows; ++i) {
            const bool visible = i * kLaneRows >= from && i * kLaneRows < to;
            p[i][c] = visible ? exp2f(p[i][c] - row_lse) : 0.0F;
            ds[i][c] = visible ? p[i][c] * (ds[i][c] - row_delta) : 0.0F;
          }
        }
        if (dv != nullptr) {
          put_scores<kScoreRow>(p, p_tile + row * kScoreRow + x);
          add_product<kValueWidth, kTile>(p_tile + row * kScoreRow, grad_tile + 4 * x, sum_v);
          __syncwarp();
        }
        if (dk != nullptr) {
          put_scores<kScoreRow>(ds, p_tile + row * kScoreRow + x);
          add_product<kWidth, kTile>(p_tile + row * kScoreRow, q_tile + 4 * x, sum_k);
        }
      }
      __syncthreads();
    }
  }
  unrolled<kRows>([&](int i) {
    const int r = row + i * kLaneRows;
    if (r >= key_rows) return;
    const std::int64_t at =
        (static_cast<std::int64_t>(b) * in.keys + key + r) * in.kv_heads + kv_head;
    // The queries carry scale * log2(e).
    if (dk != nullptr) store_row<kWidth>(sum_k[i], kLn2, in.q.width, dk + at * in.q.width);
    if (dv != nullptr) store_row<kValueWidth>(sum_v[i], 1, in.v.width, dv + at * in.v.width);
  });
}

}  // namespace

void backward(const AttentionInputs& in, ConstView out, ConstView lse, ConstView grad_out,
              const AttentionGrads& grads, View workspace) {
  const std::int64_t heads = in.batch() * in.heads(), kv_heads = in.batch() * in.kv_heads();
  const bool want_q = grads.dq.data != nullptr;
  const bool want_kv = grads.dk.data != nullptr || grads.dv.data != nullptr;
  const OutputGradient y{out.as<float>(), lse.as<float>(), operand(grad_out),
                         workspace.as<float>()};
  const Problem p = problem(in);
  constexpr unsigned kThreads = kMaxWarps * cuda::kWarp, kRowsOfBlock = kMaxWarps * kLaneRows;
  const std::int64_t rows = heads * in.queries();
  if (rows > 0 && !want_q && want_kv) {
    GPU_LAUNCH(attention_delta_kernel,
               static_cast<unsigned>((rows + kRowsOfBlock - 1) / kRowsOfBlock), kThreads, 0, p, y);
  }
  with_widths(in, [&]<int kWidth, int kValueWidth>() {
    constexpr int kRows = kWarpRows<kWidth, kValueWidth>;
    const auto bytes = [](int warps) { return backward_bytes<kWidth, kValueWidth>(warps); };
    if (rows > 0 && want_q) {
      const int warps = warps_for(heads, in.queries(), kRows, bytes);
      const std::int64_t tiles = (in.queries() + warps * kRows - 1) / (warps * kRows);
      GPU_LAUNCH((attention_dq_kernel<kWidth, kValueWidth>), static_cast<unsigned>(heads * tiles),
                 static_cast<unsigned>(warps * cuda::kWarp), bytes(warps), p, y,
                 grads.dq.as<float>());
    }
    if (kv_heads > 0 && in.keys() > 0 && want_kv) {
      const int warps = warps_for(kv_heads, in.keys(), kRows, bytes);
      const std::int64_t tiles = (in.keys() + warps * kRows - 1) / (warps * kRows);
      GPU_LAUNCH((attention_dkv_kernel<kWidth, kValueWidth>),
                 static_cast<unsigned>(kv_heads * tiles),
                 static_cast<unsigned>(warps * cuda::kWarp), bytes(warps), p, y,
                 grads.dk.as<float>(), grads.dv.as<float>());
    }
  });
}

}  // namespace duet::attention_tiles
