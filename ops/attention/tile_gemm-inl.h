// Products of small tiles in cache: one register-blocked kernel (6 rows x 2 vectors) that serves
// all six products of attention, and the packing that feeds it. Included once per Highway target.
//
//   C[m][n] (+)= sum_k A[m][k] B[k][n];  B and C rows are contiguous and padded to whole panels.
#if defined(DUET_OPS_ATTENTION_TILE_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DUET_OPS_ATTENTION_TILE_GEMM_INL_H_
#undef DUET_OPS_ATTENTION_TILE_GEMM_INL_H_
#else
#define DUET_OPS_ATTENTION_TILE_GEMM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace duet {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;

HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(F32())); }
HWY_INLINE std::int64_t panel_width() { return 2 * lanes(); }
HWY_INLINE std::int64_t padded(std::int64_t n) {
  return (n + panel_width() - 1) / panel_width() * panel_width();
}

// How A lies in memory: element (m, k) at m * lda + k, or at k * lda + m.
enum class Layout { rows, columns };
enum class Write { set, add };
// What the causal mask lets a product leave out, per block of rows. Row r of the score tile sees
// columns c < r + 1 + diagonal.
enum class Trim {
  none,
  columns,      // C is scores: columns that no row of the block sees stay unwritten
  depth_end,    // A is scores: the sum ends with the last column seen
  depth_begin,  // A is scores transposed: the sum begins with the first row that sees the block
};

template <int kRows, Layout kLayout, Write kWrite>
HWY_INLINE void micro_kernel(const float* HWY_RESTRICT a, std::int64_t lda,
                             const float* HWY_RESTRICT b, std::int64_t ldb, std::int64_t depth,
                             float* HWY_RESTRICT c, std::int64_t ldc) {
  const F32 d;
  using V = hn::Vec<F32>;
  const std::int64_t n = lanes();
  V left[kRows], right[kRows];
  for (int m = 0; m < kRows; ++m) {
    left[m] = kWrite == Write::add ? hn::LoadU(d, c + m * ldc) : hn::Zero(d);
    right[m] = kWrite == Write::add ? hn::LoadU(d, c + m * ldc + n) : hn::Zero(d);
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    const V b0 = hn::LoadU(d, b);
    const V b1 = hn::LoadU(d, b + n);
    b += ldb;
    for (int m = 0; m < kRows; ++m) {
      const V am = hn::Set(d, kLayout == Layout::rows ? a[m * lda + k] : a[m]);
      left[m] = hn::MulAdd(am, b0, left[m]);
      right[m] = hn::MulAdd(am, b1, right[m]);
    }
    if (kLayout == Layout::columns) a += lda;
  }
  for (int m = 0; m < kRows; ++m) {
    hn::StoreU(left[m], d, c + m * ldc);
    hn::StoreU(right[m], d, c + m * ldc + n);
  }
}

struct Product {
  std::int64_t rows, columns, depth;
  Trim trim = Trim::none;
  std::int64_t diagonal = 0;
};

template <int kRows, Layout kLayout, Write kWrite>
void row_block(const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
               std::int64_t depth, std::int64_t columns, float* c, std::int64_t ldc) {
  const std::int64_t step = panel_width();
  for (std::int64_t n = 0; n < columns; n += step) {
    micro_kernel<kRows, kLayout, kWrite>(a, lda, b + n, ldb, depth, c + n, ldc);
  }
}

template <Layout kLayout, Write kWrite>
void tile_product(const Product& p, const float* a, std::int64_t lda, const float* b,
                  std::int64_t ldb, float* c, std::int64_t ldc) {
  for (std::int64_t m = 0, take = 0; m < p.rows; m += take) {
    // Blocks of 6; the last 12 rows or fewer are halved, so that no block is too thin to be fast.
    const std::int64_t left = p.rows - m;
    take = left >= 12 ? 6 : left > 6 ? (left + 1) / 2 : left;
    std::int64_t columns = p.columns, begin = 0, end = p.depth;
    if (p.trim == Trim::columns)
      columns = std::clamp<std::int64_t>(m + take + p.diagonal, 0, columns);
    if (p.trim == Trim::depth_end) end = std::clamp<std::int64_t>(m + take + p.diagonal, 0, end);
    if (p.trim == Trim::depth_begin) begin = std::clamp<std::int64_t>(m - p.diagonal, 0, end);
    if (kWrite == Write::add && begin >= end) continue;
    const float* block = kLayout == Layout::rows ? a + m * lda + begin : a + begin * lda + m;
    const float* panel = b + begin * ldb;
    float* out = c + m * ldc;
    const std::int64_t depth = end - begin;
    switch (take) {
      case 6:
        row_block<6, kLayout, kWrite>(block, lda, panel, ldb, depth, columns, out, ldc);
        break;
      case 5:
        row_block<5, kLayout, kWrite>(block, lda, panel, ldb, depth, columns, out, ldc);
        break;
      case 4:
        row_block<4, kLayout, kWrite>(block, lda, panel, ldb, depth, columns, out, ldc);
        break;
      case 3:
        row_block<3, kLayout, kWrite>(block, lda, panel, ldb, depth, columns, out, ldc);
        break;
      case 2:
        row_block<2, kLayout, kWrite>(block, lda, panel, ldb, depth, columns, out, ldc);
        break;
      default:
        row_block<1, kLayout, kWrite>(block, lda, panel, ldb, depth, columns, out, ldc);
    }
  }
}

// One matrix in memory: element (r, c) at data + r * row + c * column.
struct Strided {
  const float* data;
  std::int64_t row, column;
};

// The rows of a head lie far apart, often a page: too far for the hardware to guess the next one.
constexpr std::int64_t kRowsAhead = 8;
HWY_INLINE void fetch_row(const float* row, std::int64_t columns) {
  for (std::int64_t c = 0; c < columns; c += 16) hwy::Prefetch(row + c);
}

// to[r][c] = factor * from(r, c), columns padded with zeros to whole panels.
inline void pack_rows(const Strided& from, std::int64_t rows, std::int64_t columns, float factor,
                      float* HWY_RESTRICT to, std::int64_t ld) {
  const F32 d;
  const std::int64_t n = lanes(), end = padded(columns);
  const auto f = hn::Set(d, factor);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = from.data + r * from.row;
    float* y = to + r * ld;
    std::int64_t c = 0;
    if (from.column == 1) {
      if (r + kRowsAhead < rows) fetch_row(x + kRowsAhead * from.row, columns);
      for (; c + n <= columns; c += n) hn::StoreU(hn::Mul(f, hn::LoadU(d, x + c)), d, y + c);
    }
    for (; c < columns; ++c) y[c] = factor * x[c * from.column];
    for (; c < end; ++c) y[c] = 0;
  }
}

// to[c][r] = from(r, c), rows padded with zeros to whole panels.
inline void pack_transposed(const Strided& from, std::int64_t rows, std::int64_t columns,
                            float* HWY_RESTRICT to, std::int64_t ld) {
  std::int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR  // 4 x 4 at a time, in registers; one lane cannot shuffle
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> pairs;
  if (from.column == 1) {
    for (; r + 4 <= rows; r += 4) {
      const float* x = from.data + r * from.row;
      for (std::int64_t i = kRowsAhead; i < kRowsAhead + 4 && r + i < rows; ++i) {
        fetch_row(x + i * from.row, columns);
      }
      std::int64_t c = 0;
      for (; c + 4 <= columns; c += 4) {
        const auto x0 = hn::LoadU(d, x + c), x1 = hn::LoadU(d, x + from.row + c);
        const auto x2 = hn::LoadU(d, x + 2 * from.row + c);
        const auto x3 = hn::LoadU(d, x + 3 * from.row + c);
        const auto lower01 = hn::BitCast(pairs, hn::InterleaveLower(d, x0, x1));
        const auto lower23 = hn::BitCast(pairs, hn::InterleaveLower(d, x2, x3));
        const auto upper01 = hn::BitCast(pairs, hn::InterleaveUpper(d, x0, x1));
        const auto upper23 = hn::BitCast(pairs, hn::InterleaveUpper(d, x2, x3));
        float* y = to + c * ld + r;
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, lower01, lower23)), d, y);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, lower01, lower23)), d, y + ld);
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, upper01, upper23)), d, y + 2 * ld);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, upper01, upper23)), d, y + 3 * ld);
      }
      for (; c < columns; ++c) {
        for (int i = 0; i < 4; ++i) to[c * ld + r + i] = x[i * from.row + c];
      }
    }
  }
#endif
  const std::int64_t end = padded(rows);
  for (std::int64_t c = 0; c < columns; ++c) {
    std::int64_t i = r;
    for (; i < rows; ++i) to[c * ld + i] = from.data[i * from.row + c * from.column];
    for (; i < end; ++i) to[c * ld + i] = 0;
  }
}

HWY_INLINE float dot(const float* HWY_RESTRICT x, const float* HWY_RESTRICT y, std::int64_t n) {
  const F32 d;
  const std::int64_t step = lanes(), whole = n / step * step;
  auto even = hn::Zero(d), odd = hn::Zero(d);
  std::int64_t c = 0;
  for (; c + 2 * step <= whole; c += 2 * step) {
    even = hn::MulAdd(hn::LoadU(d, x + c), hn::LoadU(d, y + c), even);
    odd = hn::MulAdd(hn::LoadU(d, x + c + step), hn::LoadU(d, y + c + step), odd);
  }
  if (c < whole) {
    even = hn::MulAdd(hn::LoadU(d, x + c), hn::LoadU(d, y + c), even);
    c += step;
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; c < n; ++c) sum += x[c] * y[c];
  return sum;
}

// 2^x for x <= 128: exactly 0 below -127 (and for -inf), NaN stays NaN, within 2 ulp.
template <class V>
HWY_INLINE V exp2_fast(V x) {
  const F32 d;
  const hn::RebindToUnsigned<F32> bits;
  // Adding 1.5 * 2^23 rounds to an integer in the low mantissa bits; 127 more is the exponent bias.
  const V magic = hn::Set(d, 12582912.0f + 127.0f);
  // Not Max, whose result for NaN differs between instruction sets.
  const V least = hn::Set(d, -127.0f);
  x = hn::IfThenElse(hn::Lt(x, least), least, x);
  const V shifted = hn::Add(x, magic);
  const V f = hn::Sub(x, hn::Sub(shifted, magic));  // in [-0.5, 0.5]
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(bits, shifted)));
  V p = hn::Set(d, 1.55946775e-4f);  // minimax on [-0.5, 0.5], 1 at 0; error 3e-9
  p = hn::MulAdd(p, f, hn::Set(d, 1.34066439e-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 9.61769297e-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 5.55031055e-2f));
  p = hn::MulAdd(p, f, hn::Set(d, 2.40226528e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 6.93147215e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  return hn::Mul(p, power);
}

}  // namespace HWY_NAMESPACE
}  // namespace duet
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
