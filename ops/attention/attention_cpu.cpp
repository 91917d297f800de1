// CPU attention. f32: tiles of queries against tiles of keys, packed into cache and multiplied by
// the kernel of tile_gemm-inl.h, with the softmax done online. f64: attention_plain.h.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/attention_cpu.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per target
//
#include "hwy/highway.h"
//
#include <atomic>
#include <cmath>
#include <limits>

#include "ops/attention/attention.h"
#include "ops/attention/attention_plain.h"
#include "ops/attention/tile_gemm-inl.h"
#include "runtime/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace duet {
namespace HWY_NAMESPACE {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Queries are packed times scale * log2(e): scores come out ready for 2^x.
constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;

// Head h of sequence b: element (t, c).
HWY_INLINE Strided head_of(const ConstView& x, std::int64_t b, std::int64_t h) {
  return {x.as<float>() + b * x.stride(0) + h * x.stride(2), x.stride(1), x.stride(3)};
}
HWY_INLINE Strided from_row(const Strided& m, std::int64_t r) {
  return {m.data + r * m.row, m.row, m.column};
}

// The part [begin, end) of a tile's columns, counted from its first, that a query sees.
struct Span {
  std::int64_t begin, end;
};
HWY_INLINE Span visible(const AttentionInputs& in, std::int64_t b, std::int64_t query,
                        std::int64_t first_column, std::int64_t columns) {
  return {std::max<std::int64_t>(0, in.first_key(b, query) - first_column),
          std::min(columns, in.last_key(query) - first_column)};
}
// The keys that a tile of queries sees, those of its widest row.
HWY_INLINE Span visible(const AttentionInputs& in, std::int64_t b, std::int64_t query,
                        std::int64_t rows) {
  Span keys{in.keys(), in.last_key(query + rows - 1)};
  for (std::int64_t r = 0; r < rows; ++r)
    keys.begin = std::min(keys.begin, in.first_key(b, query + r));
  return keys;
}
// Of the tile with this first query and first key: see Trim.
HWY_INLINE std::int64_t diagonal(const AttentionInputs& in, std::int64_t query, std::int64_t key) {
  return in.causal ? query + in.keys() - in.queries() - key : kKeyTile;
}

struct RowState {
  float max = -kInfinity;
  float sum = 0;
};

// scores[0, columns) become 2^(score - max), 0 where not visible; columns is a multiple of the
// vector. Returns the factor by which earlier sums of this row shrink.
float softmax_row(float* HWY_RESTRICT scores, Span seen, std::int64_t columns, RowState& state) {
  const F32 d;
  using V = hn::Vec<F32>;
  const std::int64_t n = lanes();
  std::int64_t end = 0;
  float shrink = 1;
  if (seen.begin < seen.end) {
    end = (seen.end + n - 1) / n * n;
    std::fill(scores, scores + seen.begin, -kInfinity);
    std::fill(scores + seen.end, scores + end, -kInfinity);
    V max = hn::Set(d, state.max);
    for (std::int64_t c = 0; c < end; c += n) max = hn::Max(max, hn::LoadU(d, scores + c));
    max = hn::MaxOfLanes(d, max);
    V sum = hn::Zero(d);
    for (std::int64_t c = 0; c < end; c += n) {
      const V p = exp2_fast(hn::Sub(hn::LoadU(d, scores + c), max));
      hn::StoreU(p, d, scores + c);
      sum = hn::Add(sum, p);
    }
    if (state.sum != 0) shrink = hn::GetLane(exp2_fast(hn::Sub(hn::Set(d, state.max), max)));
    state.sum = state.sum * shrink + hn::GetLane(hn::SumOfLanes(d, sum));
    state.max = hn::GetLane(max);
  }
  std::fill(scores + end, scores + std::max(end, columns), 0.0f);
  return shrink;
}

HWY_INLINE void scale_row(float* HWY_RESTRICT row, std::int64_t columns, float factor) {
  const F32 d;
  for (std::int64_t c = 0; c < columns; c += lanes()) {
    hn::StoreU(hn::Mul(hn::Set(d, factor), hn::LoadU(d, row + c)), d, row + c);
  }
}

// out_i = sum / state.sum, and the row's log sum exp; zeros for a row that saw no key.
void finish_row(const RowState& state, const float* sum, std::int64_t value_width, float* out,
                float* lse) {
  const bool seen = state.sum != 0;  // at least 1, or NaN, once a key was seen
  const float factor = seen ? 1 / state.sum : 0.0f;
  for (std::int64_t c = 0; c < value_width; ++c) out[c] = seen ? factor * sum[c] : 0.0f;
  *lse = seen ? static_cast<float>(kLn2 * (state.max + std::log2(static_cast<double>(state.sum))))
              : 0.0f;
}

// All queries of one key/value head: keys and values are packed once, then every tile of queries
// walks over the tiles of keys that it sees.
void forward_unit(const AttentionInputs& in, std::int64_t unit, View out, View lse,
                  float* scratch) {
  const std::int64_t width = in.width(), value_width = in.value_width(), keys = in.keys();
  const std::int64_t b = unit / in.kv_heads(), kv_head = unit % in.kv_heads();
  const std::int64_t ldq = padded(width), ldv = padded(value_width);
  float* kt = scratch;  // per tile of keys: [D, kKeyTile]
  float* v = kt + round_up(keys, kKeyTile) * width;
  float* q = v + round_up(keys, kKeyTile) * ldv;
  float* s = q + kQueryTile * ldq;
  float* o = s + kQueryTile * kKeyTile;
  const Strided k_head = head_of(in.k, b, kv_head), v_head = head_of(in.v, b, kv_head);
  for (std::int64_t key = 0; key < keys; key += kKeyTile) {
    const std::int64_t columns = std::min(kKeyTile, keys - key);
    pack_transposed(from_row(k_head, key), columns, width, kt + key * width, kKeyTile);
    pack_rows(from_row(v_head, key), columns, value_width, 1, v + key * ldv, ldv);
  }
  RowState state[kQueryTile];
  for (std::int64_t g = 0; g < in.group(); ++g) {
    const std::int64_t h = kv_head * in.group() + g;
    const Strided q_head = head_of(in.q, b, h);
    for (std::int64_t query = 0; query < in.queries(); query += kQueryTile) {
      const std::int64_t rows = std::min(kQueryTile, in.queries() - query);
      pack_rows(from_row(q_head, query), rows, width, static_cast<float>(in.scale * kLog2E), q,
                ldq);
      std::fill(state, state + rows, RowState());
      const Span tiles = visible(in, b, query, rows);
      const std::int64_t first = tiles.begin / kKeyTile * kKeyTile;
      for (std::int64_t key = first; key < tiles.end; key += kKeyTile) {
        const std::int64_t columns = std::min(kKeyTile, keys - key);
        const std::int64_t diag = diagonal(in, query, key);
        tile_product<Layout::rows, Write::set>({rows, columns, width, Trim::columns, diag}, q, ldq,
                                               kt + key * width, kKeyTile, s, kKeyTile);
        for (std::int64_t r = 0; r < rows; ++r) {
          const Span seen = visible(in, b, query + r, key, columns);
          const float shrink = softmax_row(s + r * kKeyTile, seen, padded(columns), state[r]);
          if (key != first && shrink != 1) scale_row(o + r * ldv, ldv, shrink);
        }
        const Product sum{rows, ldv, columns, Trim::depth_end, diag};
        if (key == first) {
          tile_product<Layout::rows, Write::set>(sum, s, kKeyTile, v + key * ldv, ldv, o, ldv);
        } else {
          tile_product<Layout::rows, Write::add>(sum, s, kKeyTile, v + key * ldv, ldv, o, ldv);
        }
      }
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t row = ((b * in.queries() + query + r) * in.heads() + h) * value_width;
        finish_row(state[r], o + r * ldv, value_width, out.as<float>() + row,
                   lse.as<float>() + (b * in.heads() + h) * in.queries() + query + r);
      }
    }
  }
}

// The few rows of a decoding step: keys and values are read once, in place.
void decode_unit(const AttentionInputs& in, std::int64_t unit, View out, View lse, float* scratch) {
  const std::int64_t width = in.width(), value_width = in.value_width();
  const std::int64_t b = unit / in.kv_heads(), kv_head = unit % in.kv_heads();
  const std::int64_t rows = in.group() * in.queries();
  const std::int64_t ldq = padded(width), ldv = padded(value_width);
  float* q = scratch;
  float* o = q + kQueryTile * ldq;
  float* s = o + kQueryTile * ldv;
  float* packed = s + kQueryTile * kKeyTile;
  RowState state[kQueryTile];
  const Strided k_head = head_of(in.k, b, kv_head), v_head = head_of(in.v, b, kv_head);
  for (std::int64_t g = 0; g < in.group(); ++g) {
    pack_rows(head_of(in.q, b, kv_head * in.group() + g), in.queries(), width,
              static_cast<float>(in.scale * kLog2E), q + g * in.queries() * ldq, ldq);
  }
  std::fill(o, o + rows * ldv, 0.0f);
  const Span tiles = visible(in, b, 0, in.queries());
  for (std::int64_t key = tiles.begin / kKeyTile * kKeyTile; key < tiles.end; key += kKeyTile) {
    const std::int64_t columns = std::min(kKeyTile, in.keys() - key);
    const Strided k = from_row(k_head, key), v = from_row(v_head, key);
    for (std::int64_t j = 0; j < columns; ++j) {
      const float* row = k.data + j * k.row;
      if (j + kRowsAhead < columns) fetch_row(row + kRowsAhead * k.row, width);
      fetch_row(v.data + j * v.row, value_width);
      for (std::int64_t r = 0; r < rows; ++r) s[r * kKeyTile + j] = dot(q + r * ldq, row, width);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const Span seen = visible(in, b, r % in.queries(), key, columns);
      const float shrink = softmax_row(s + r * kKeyTile, seen, padded(columns), state[r]);
      if (shrink != 1) scale_row(o + r * ldv, ldv, shrink);
    }
    const bool whole_panels = value_width == ldv;
    if (!whole_panels) pack_rows(v, columns, value_width, 1, packed, ldv);
    tile_product<Layout::rows, Write::add>({rows, ldv, columns}, s, kKeyTile,
                                           whole_panels ? v.data : packed,
                                           whole_panels ? v.row : ldv, o, ldv);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t h = kv_head * in.group() + r / in.queries(), i = r % in.queries();
    const std::int64_t row = ((b * in.queries() + i) * in.heads() + h) * value_width;
    finish_row(state[r], o + r * ldv, value_width, out.as<float>() + row,
               lse.as<float>() + (b * in.heads() + h) * in.queries() + i);
  }
}

// scores become probs p = 2^(s - lse), grads become ds = p (dp - delta); 0 where not visible.
void score_gradient_row(float* HWY_RESTRICT scores, float* HWY_RESTRICT grads, Span seen,
                        std::int64_t columns, float lse, float delta) {
  const F32 d;
  const std::int64_t begin = std::min(std::max<std::int64_t>(seen.begin, 0), columns);
  const std::int64_t end = std::max(begin, seen.end);
  for (std::int64_t c = 0; c < end; c += lanes()) {
    const auto p = exp2_fast(hn::Sub(hn::LoadU(d, scores + c), hn::Set(d, lse)));
    hn::StoreU(p, d, scores + c);
    hn::StoreU(hn::Mul(p, hn::Sub(hn::LoadU(d, grads + c), hn::Set(d, delta))), d, grads + c);
  }
  for (float* row : {scores, grads}) {
    std::fill(row, row + begin, 0.0f);
    std::fill(row + end, row + columns, 0.0f);
  }
}

// to[r][c] = or += factor * from[r][c], into one head of a contiguous [B, T, H, width] tensor.
void unpack_rows(const float* from, std::int64_t ld, std::int64_t rows, std::int64_t width,
                 float factor, bool add, float* to, std::int64_t row) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = from + r * ld;
    float* y = to + r * row;
    if (r + kRowsAhead < rows) fetch_row(y + kRowsAhead * row, width);
    if (add) {
      for (std::int64_t c = 0; c < width; ++c) y[c] += factor * x[c];
    } else {
      for (std::int64_t c = 0; c < width; ++c) y[c] = factor * x[c];
    }
  }
}

// All gradients of one key/value head. Per query head: queries and output gradients are packed
// once, then each tile of keys meets every tile of queries that sees it.
void backward_unit(const AttentionInputs& in, std::int64_t unit, ConstView out, ConstView lse,
                   ConstView grad_out, const AttentionGrads& grads, float* scratch) {
  const std::int64_t width = in.width(), value_width = in.value_width();
  const std::int64_t queries = in.queries(), keys = in.keys(), kv_heads = in.kv_heads();
  const std::int64_t b = unit / kv_heads, kv_head = unit % kv_heads;
  const std::int64_t ldq = padded(width), ldv = padded(value_width);
  const bool want_q = grads.dq.data != nullptr, want_k = grads.dk.data != nullptr;
  const bool want_v = grads.dv.data != nullptr;
  float* q = scratch;
  float* dq = q + queries * ldq;
  float* dout = dq + queries * ldq;
  float* row_lse = dout + queries * ldv;
  float* delta = row_lse + queries;
  float* k = delta + queries;
  float* dk = k + kKeyTile * ldq;
  float* dv = dk + kKeyTile * ldq;
  float* kt = dv + kKeyTile * ldv;
  float* vt = kt + kKeyTile * width;
  float* p = vt + kKeyTile * value_width;
  float* ds = p + kQueryTile * kKeyTile;
  const Strided k_head = head_of(in.k, b, kv_head), v_head = head_of(in.v, b, kv_head);
  for (std::int64_t g = 0; g < in.group(); ++g) {
    const std::int64_t h = kv_head * in.group() + g;
    pack_rows(head_of(in.q, b, h), queries, width, static_cast<float>(in.scale * kLog2E), q, ldq);
    pack_rows(head_of(grad_out, b, h), queries, value_width, 1, dout, ldv);
    std::fill(dq, dq + queries * ldq, 0.0f);
    for (std::int64_t i = 0; i < queries; ++i) {
      const float* y = out.as<float>() + ((b * queries + i) * in.heads() + h) * value_width;
      delta[i] = dot(dout + i * ldv, y, value_width);
      row_lse[i] = static_cast<float>(kLog2E) * lse.as<float>()[(b * in.heads() + h) * queries + i];
    }
    for (std::int64_t key = 0; key < keys; key += kKeyTile) {
      const std::int64_t columns = std::min(kKeyTile, keys - key);
      pack_rows(from_row(k_head, key), columns, width, 1, k, ldq);
      pack_transposed(from_row(k_head, key), columns, width, kt, kKeyTile);
      pack_transposed(from_row(v_head, key), columns, value_width, vt, kKeyTile);
      std::fill(dk, dk + columns * ldq, 0.0f);
      std::fill(dv, dv + columns * ldv, 0.0f);
      for (std::int64_t query = 0; query < queries; query += kQueryTile) {
        const std::int64_t rows = std::min(kQueryTile, queries - query);
        const Span tiles = visible(in, b, query, rows);
        if (tiles.begin >= key + columns || tiles.end <= key) continue;
        const std::int64_t diag = diagonal(in, query, key);
        tile_product<Layout::rows, Write::set>({rows, columns, width, Trim::columns, diag},
                                               q + query * ldq, ldq, kt, kKeyTile, p, kKeyTile);
        tile_product<Layout::rows, Write::set>({rows, columns, value_width, Trim::columns, diag},
                                               dout + query * ldv, ldv, vt, kKeyTile, ds, kKeyTile);
        for (std::int64_t r = 0; r < rows; ++r) {
          const Span seen = visible(in, b, query + r, key, columns);
          score_gradient_row(p + r * kKeyTile, ds + r * kKeyTile, seen, padded(columns),
                             row_lse[query + r], delta[query + r]);
        }
        if (want_v) {
          tile_product<Layout::columns, Write::add>({columns, ldv, rows, Trim::depth_begin, diag},
                                                    p, kKeyTile, dout + query * ldv, ldv, dv, ldv);
        }
        if (want_k) {
          tile_product<Layout::columns, Write::add>({columns, ldq, rows, Trim::depth_begin, diag},
                                                    ds, kKeyTile, q + query * ldq, ldq, dk, ldq);
        }
        if (want_q) {
          tile_product<Layout::rows, Write::add>({rows, ldq, columns, Trim::depth_end, diag}, ds,
                                                 kKeyTile, k, ldq, dq + query * ldq, ldq);
        }
      }
      const std::int64_t first = (b * keys + key) * kv_heads + kv_head;
      if (want_k) {  // the packed queries carry scale * log2(e)
        unpack_rows(dk, ldq, columns, width, static_cast<float>(kLn2), g > 0,
                    grads.dk.as<float>() + first * width, kv_heads * width);
      }
      if (want_v) {
        unpack_rows(dv, ldv, columns, value_width, 1, g > 0,
                    grads.dv.as<float>() + first * value_width, kv_heads * value_width);
      }
    }
    if (want_q) {
      unpack_rows(dq, ldq, queries, width, static_cast<float>(in.scale), false,
                  grads.dq.as<float>() + (b * queries * in.heads() + h) * width,
                  in.heads() * width);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace duet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace duet {
namespace {

HWY_EXPORT(forward_unit);
HWY_EXPORT(decode_unit);
HWY_EXPORT(backward_unit);

// Rows per key/value head up to which reading keys in place beats packing them first.
constexpr std::int64_t kDecodeRows = 8;

// Calls f(unit, slot) for each unit; each thread takes the next one that is left.
template <class F>
void for_each_unit(const AttentionInputs& in, const View& workspace, F&& f) {
  std::atomic<std::int64_t> next{0};
  parallel_chunks(workspace.size(0), [&](std::int64_t slot) {
    for (std::int64_t unit = next++; unit < in.units(); unit = next++) f(unit, slot);
  });
}

void forward(const AttentionInputs& in, View out, View lse, View workspace) {
  const bool decode =
      in.queries() * in.group() <= kDecodeRows && in.k.stride(3) == 1 && in.v.stride(3) == 1;
  for_each_unit(in, workspace, [&](std::int64_t unit, std::int64_t slot) {
    if (in.q.dtype == DType::f64) {
      return attention_plain::forward_unit<double>(in, unit, out, lse);
    }
    float* scratch = workspace.as<float>() + slot * workspace.size(1);
    if (decode) {
      HWY_DYNAMIC_DISPATCH(decode_unit)(in, unit, out, lse, scratch);
    } else {
      HWY_DYNAMIC_DISPATCH(forward_unit)(in, unit, out, lse, scratch);
    }
  });
}

void backward(const AttentionInputs& in, ConstView out, ConstView lse, ConstView grad_out,
              const AttentionGrads& grads, View workspace) {
  for_each_unit(in, workspace, [&](std::int64_t unit, std::int64_t slot) {
    if (in.q.dtype == DType::f64) {
      return attention_plain::backward_unit<double>(in, unit, out, lse, grad_out, grads);
    }
    float* scratch = workspace.as<float>() + slot * workspace.size(1);
    HWY_DYNAMIC_DISPATCH(backward_unit)(in, unit, out, lse, grad_out, grads, scratch);
  });
}

}  // namespace

extern const AttentionKernels attention_cpu{forward, backward};

}  // namespace duet
#endif  // HWY_ONCE
