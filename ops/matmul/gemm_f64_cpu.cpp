#include <algorithm>
#include <array>

#include "ops/matmul/gemm_f64.h"
#include "runtime/cpu/parallel.h"

namespace duet {
namespace {

// A chunk of work is one tile of c. It walks K in blocks; a block of a and of b is packed so that
// the innermost loops read memory in order, and padded with zeros to whole micro-tiles.
constexpr std::int64_t kTileM = 32;
constexpr std::int64_t kTileN = 64;
constexpr std::int64_t kBlockK = 64;
constexpr std::int64_t kMicroM = 4;
constexpr std::int64_t kMicroN = 4;

// A matrix inside a view.
template <class T>
struct Matrix {
  T* data;
  std::int64_t rows, columns, row_step, column_step;
};

template <class T, class AnyView>
Matrix<T> matrix_of(const AnyView& x, std::int64_t batch) {
  T* data = x.template as<std::remove_const_t<T>>();
  for (int d = x.ndim() - 3; d >= 0; --d) {
    data += batch % x.shape[d] * x.strides[d];
    batch /= x.shape[d];
  }
  return {data, x.size(-2), x.size(-1), x.stride(-2), x.stride(-1)};
}

// packed[panel][k][i] = x[first + panel * width + i, k0 + k]; panels of `width` lines
void pack(const double* x, std::int64_t lines, std::int64_t line_step, std::int64_t depth,
          std::int64_t depth_step, std::int64_t width, double* packed) {
  for (std::int64_t panel = 0; panel < lines; panel += width) {
    const std::int64_t n = std::min(width, lines - panel);
    for (std::int64_t k = 0; k < depth; ++k) {
      const double* from = x + panel * line_step + k * depth_step;
      for (std::int64_t i = 0; i < n; ++i) packed[i] = from[i * line_step];
      for (std::int64_t i = n; i < width; ++i) packed[i] = 0;
      packed += width;
    }
  }
}

// sums[4][4] += a-panel^T b-panel over `depth`
void micro_tile(const double* a, const double* b, std::int64_t depth, double* sums,
                std::int64_t step) {
  std::array<std::array<double, kMicroN>, kMicroM> s{};
  for (std::int64_t k = 0; k < depth; ++k, a += kMicroM, b += kMicroN) {
    for (std::size_t i = 0; i < kMicroM; ++i) {
      for (std::size_t j = 0; j < kMicroN; ++j) s[i][j] += a[i] * b[j];
    }
  }
  for (std::size_t i = 0; i < kMicroM; ++i) {
    for (std::size_t j = 0; j < kMicroN; ++j) {
      sums[static_cast<std::int64_t>(i) * step + static_cast<std::int64_t>(j)] += s[i][j];
    }
  }
}

void tile(const Matrix<const double>& a, const Matrix<const double>& b, const Matrix<double>& c,
          std::int64_t m0, std::int64_t n0, bool accumulate) {
  std::array<double, kTileM * kBlockK> packed_a;
  std::array<double, kBlockK * kTileN> packed_b;
  std::array<double, kTileM * kTileN> sums{};
  const std::int64_t m = std::min(kTileM, c.rows - m0);
  const std::int64_t n = std::min(kTileN, c.columns - n0);
  for (std::int64_t k0 = 0; k0 < a.columns; k0 += kBlockK) {
    const std::int64_t depth = std::min(kBlockK, a.columns - k0);
    pack(a.data + m0 * a.row_step + k0 * a.column_step, m, a.row_step, depth, a.column_step,
         kMicroM, packed_a.data());
    pack(b.data + n0 * b.column_step + k0 * b.row_step, n, b.column_step, depth, b.row_step,
         kMicroN, packed_b.data());
    for (std::int64_t i = 0; i < m; i += kMicroM) {
      for (std::int64_t j = 0; j < n; j += kMicroN) {
        micro_tile(packed_a.data() + i * depth, packed_b.data() + j * depth, depth,
                   sums.data() + i * kTileN + j, kTileN);
      }
    }
  }
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double& out = c.data[(m0 + i) * c.row_step + (n0 + j) * c.column_step];
      const double sum = sums[static_cast<std::size_t>(i * kTileN + j)];
      out = accumulate ? out + sum : sum;
    }
  }
}

}  // namespace

void gemm_f64(ConstView a, ConstView b, View c, bool accumulate) {
  std::int64_t batches = 1;
  for (int d = 0; d + 2 < c.ndim(); ++d) batches *= c.shape[d];
  const std::int64_t tiles_m = (c.size(-2) + kTileM - 1) / kTileM;
  const std::int64_t tiles_n = (c.size(-1) + kTileN - 1) / kTileN;
  parallel_chunks(batches * tiles_m * tiles_n, [&](std::int64_t chunk) {
    const std::int64_t batch = chunk / (tiles_m * tiles_n);
    const std::int64_t m0 = chunk / tiles_n % tiles_m * kTileM;
    const std::int64_t n0 = chunk % tiles_n * kTileN;
    tile(matrix_of<const double>(a, batch), matrix_of<const double>(b, batch),
         matrix_of<double>(c, batch), m0, n0, accumulate);
  });
}

}  // namespace duet
