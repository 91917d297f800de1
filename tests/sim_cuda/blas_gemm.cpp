// The blocked product: packs panels of a and b so that the innermost loop reads both in order and
// keeps a tile of c in registers.
#include "tests/sim_cuda/blas_gemm.h"

#include <algorithm>
#include <vector>

namespace sim {

namespace {

constexpr std::int64_t kTileRows = 8;  // two vectors of four floats
constexpr std::int64_t kTileColumns = 4;
constexpr std::int64_t kInner = 256;      // of a packed block
constexpr std::int64_t kBlockRows = 128;  // of a, so that its block stays in the L2 cache

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// Packs `count` lines of length `inner` into panels of kTile lines, line by line within a step of
// the inner dimension; lines that fill the last panel are zero.
template <std::int64_t kTile>
void pack(const float* data, std::int64_t count, std::int64_t line_stride, std::int64_t inner,
          std::int64_t inner_stride, float* packed) {
  for (std::int64_t first = 0; first < count; first += kTile) {
    const std::int64_t lines = std::min(kTile, count - first);
    if (lines < kTile) std::fill_n(packed, kTile * inner, 0.0F);
    if (line_stride == 1 || inner_stride != 1) {
      for (std::int64_t l = 0; l < inner; ++l) {
        const float* from = data + first * line_stride + l * inner_stride;
        for (std::int64_t i = 0; i < lines; ++i) packed[l * kTile + i] = from[i * line_stride];
      }
    } else {
      for (std::int64_t i = 0; i < lines; ++i) {
        const float* from = data + (first + i) * line_stride;
        for (std::int64_t l = 0; l < inner; ++l) packed[l * kTile + i] = from[l];
      }
    }
    packed += kTile * inner;
  }
}

// tile[column][row] += sum over l of a[l][row] * b[l][column]
void multiply_tile(const float* __restrict a, const float* __restrict b, std::int64_t inner,
                   float (&tile)[kTileColumns][kTileRows]) {
  using Vector __attribute__((vector_size(16))) = float;
  static_assert(kTileRows == 8 && sizeof(Vector) == 16);
  Vector sums[kTileColumns][2] = {};
  for (std::int64_t l = 0; l < inner; ++l) {
    Vector low;
    Vector high;
    __builtin_memcpy(&low, a, sizeof low);
    __builtin_memcpy(&high, a + 4, sizeof high);
    for (int j = 0; j < kTileColumns; ++j) {
      sums[j][0] += low * b[j];
      sums[j][1] += high * b[j];
    }
    a += kTileRows;
    b += kTileColumns;
  }
  __builtin_memcpy(tile, sums, sizeof sums);
}

}  // namespace

void multiply(std::int64_t rows, std::int64_t columns, std::int64_t inner, Matrix a, Matrix b,
              float* c) {
  std::fill_n(c, rows * columns, 0.0F);
  std::vector<float> packed_a(static_cast<std::size_t>(kInner * kBlockRows));
  std::vector<float> packed_b(static_cast<std::size_t>(
      kInner * round_up(std::max<std::int64_t>(columns, 1), kTileColumns)));
  float tile[kTileColumns][kTileRows];
  for (std::int64_t l = 0; l < inner; l += kInner) {
    const std::int64_t depth = std::min(kInner, inner - l);
    pack<kTileColumns>(b.data + l * b.row_stride, columns, b.column_stride, depth, b.row_stride,
                       packed_b.data());
    for (std::int64_t block = 0; block < rows; block += kBlockRows) {
      const std::int64_t block_rows = std::min(kBlockRows, rows - block);
      pack<kTileRows>(a.data + block * a.row_stride + l * a.column_stride, block_rows, a.row_stride,
                      depth, a.column_stride, packed_a.data());
      for (std::int64_t j = 0; j < columns; j += kTileColumns) {
        for (std::int64_t i = 0; i < block_rows; i += kTileRows) {
          multiply_tile(packed_a.data() + i * depth, packed_b.data() + j * depth, depth, tile);
          const std::int64_t most = std::min(kTileRows, block_rows - i);
          for (std::int64_t jj = 0; jj < std::min(kTileColumns, columns - j); ++jj) {
            float* out = c + block + i + (j + jj) * rows;
            for (std::int64_t ii = 0; ii < most; ++ii) out[ii] += tile[jj][ii];
          }
        }
      }
    }
  }
}

}  // namespace sim
