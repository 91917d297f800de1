// layer_norm (kCentred) and rms_norm on the GPU, of x or of a residual sum: a group of threads per
// row. The gradients of weight and bias are summed per block over its rows, then over the blocks in
// a second launch.
//   n = (x - m) r,  m = mean(x) or 0,  r = 1 / sqrt(mean((x - m)^2) + eps)
#pragma once

#include <cmath>

#include "ops/row_group.cuh"
#include "runtime/view.h"

namespace duet {
namespace {

// m = m0 + m1, as in layer_norm.h.
struct NormStatistics {
  float m0, m1, r;
  __device__ float normalised(float x) const { return ((x - m0) - m1) * r; }
};

// Sums kept as Sum: float, or double for rows whose squares leave the range of float. `squares`
// says whether they did.
template <bool kCentred, class Sum, class Group>
__device__ NormStatistics norm_sums(const float* row, const float (&x)[Group::kShare],
                                    std::int64_t width, double eps, Sum& squares) {
  const auto n = static_cast<Sum>(width);
  float m0 = 0;
  Sum sum = 0;
  if constexpr (kCentred) {
    Group::each(width,
                [&](int k, std::int64_t j) { sum += static_cast<Sum>(Group::at(row, x, k, j)); });
    m0 = static_cast<float>(Group::template reduce<cuda::Sum>(sum) / n);
    sum = 0;
  }
  squares = 0;
  Group::each(width, [&](int k, std::int64_t j) {
    const Sum e = static_cast<Sum>(Group::at(row, x, k, j)) - static_cast<Sum>(m0);
    sum += e;
    squares += e * e;
  });
  squares = Group::template reduce<cuda::Sum>(squares);
  Sum m1 = 0;
  if constexpr (kCentred) {
    sum = Group::template reduce<cuda::Sum>(sum);
    m1 = sum / n;
  }
  Sum variance = squares;
  if constexpr (kCentred) {
    variance = squares - m1 * sum;
    if (variance < 0) variance = 0;
  }
  const double mean_square = static_cast<double>(variance) / static_cast<double>(width);
  return {m0, static_cast<float>(m1), static_cast<float>(1.0 / std::sqrt(mean_square + eps))};
}

template <bool kCentred, class Group>
__device__ NormStatistics norm_statistics(const float* row, const float (&x)[Group::kShare],
                                          std::int64_t width, double eps) {
  float squares;
  const NormStatistics s = norm_sums<kCentred, float, Group>(row, x, width, eps, squares);
  if (std::isfinite(squares)) return s;  // the same for the whole group
  double wide;
  return norm_sums<kCentred, double, Group>(row, x, width, eps, wide);
}

struct NormInputs {
  const float *x, *delta;              // [rows, width]; a null delta: x itself is normalised
  const float *weight, *bias;          // [width]; bias or null
  float *sum = nullptr, *y = nullptr;  // [rows, width]; sum null with delta
  double eps = 0;
  std::int64_t rows = 0, width = 0;
};

// sum = x + delta,  y = n w + b
template <bool kCentred, class Group>
__global__ void norm_forward_kernel(NormInputs p) {
  const std::int64_t width = p.width;
  for (std::int64_t i = blockIdx.x * std::int64_t{Group::kGroups} + Group::group(); i < p.rows;
       i += gridDim.x * std::int64_t{Group::kGroups}) {
    const float* row = p.x + i * width;
    float values[Group::kShare];
    Group::load(row, width, values);
    if (p.delta != nullptr) {
      const float* const delta_row = p.delta + i * width;
      float* const sum = p.sum + i * width;
      float delta[Group::kShare];
      Group::load(delta_row, width, delta);  // all of it before a store: one wait for memory
      Group::each(width, [&](int k, std::int64_t j) {
        const float total = Group::at(row, values, k, j) + Group::at(delta_row, delta, k, j);
        sum[j] = total;
        if constexpr (Group::is_cached) values[k] = total;
      });
      row = sum;  // each thread reads what it wrote itself
    }
    const NormStatistics s = norm_statistics<kCentred, Group>(row, values, width, p.eps);
    Group::each(width, [&](int k, std::int64_t j) {
      const float n = s.normalised(Group::at(row, values, k, j)) * p.weight[j];
      p.y[i * width + j] = p.bias != nullptr ? n + p.bias[j] : n;
    });
  }
}

struct NormGradients {
  const float *x, *weight, *dsum, *dy;  // [rows, width], [width], [rows, width] or null, same
  float* dx;                            // or null, as those of parts
  float *dweight_parts, *dbias_parts;   // [blocks, width]
  double eps;
  std::int64_t rows, width, rows_of_block;
};

// part[j] = the sum of `share` over the groups of the block, in their order.
template <class Group>
__device__ void store_part(float* part, const float (&share)[Group::kShare], std::int64_t width) {
  if constexpr (Group::kGroups == 1) {
    Group::each(width, [&](int k, std::int64_t j) { part[j] = share[k]; });
  } else {
    GPU_SHARED(float, sums, [Group::kWidest]);
    for (int g = 0; g < Group::kGroups; ++g) {
      if (Group::group() == g) {
        Group::each(width, [&](int k, std::int64_t j) {
          sums[j] = g == 0 ? share[k] : sums[j] + share[k];
        });
      }
      __syncthreads();
    }
    for (std::int64_t j = threadIdx.x; j < width; j += kRowThreads) part[j] = sums[j];
    __syncthreads();  // the next call writes sums
  }
}

// With g = dy w:  dx = dsum + r (g - mean(g) - n mean(g n)), without mean(g) in rms_norm; the parts
// of a block: dw = sum of dy n, db = sum of dy. Long rows are added to the parts in memory, each
// element by its own thread.
template <bool kCentred, class Group>
__global__ void norm_backward_kernel(NormGradients p) {
  const std::int64_t width = p.width;
  const std::int64_t begin = blockIdx.x * p.rows_of_block;
  const std::int64_t end = std::min(p.rows, begin + p.rows_of_block);
  float* const dw_part =
      p.dweight_parts != nullptr ? p.dweight_parts + blockIdx.x * width : nullptr;
  float* const db_part = p.dbias_parts != nullptr ? p.dbias_parts + blockIdx.x * width : nullptr;
  float dw[Group::kShare] = {}, db[Group::kShare] = {};
  for (std::int64_t i = begin + Group::group(); i < end; i += Group::kGroups) {
    const float *row = p.x + i * width, *dy_row = p.dy + i * width;
    float n[Group::kShare], dy[Group::kShare];
    Group::load(row, width, n);
    Group::load(dy_row, width, dy);
    const NormStatistics s = norm_statistics<kCentred, Group>(row, n, width, p.eps);
    float sum_g = 0, dot_gn = 0;
    Group::each(width, [&](int k, std::int64_t j) {
      const float n_j = s.normalised(Group::at(row, n, k, j));
      const float dy_j = Group::at(dy_row, dy, k, j);
      const float g = dy_j * p.weight[j];
      if constexpr (kCentred) sum_g += g;
      dot_gn += g * n_j;
      if constexpr (Group::is_cached) {
        n[k] = n_j;
        dw[k] += dy_j * n_j;
        if constexpr (kCentred) db[k] += dy_j;
      } else {
        if (dw_part != nullptr) dw_part[j] = (i == begin ? 0.0F : dw_part[j]) + dy_j * n_j;
        if (db_part != nullptr) db_part[j] = (i == begin ? 0.0F : db_part[j]) + dy_j;
      }
    });
    if (p.dx == nullptr) continue;
    const float* const dsum_row = p.dsum != nullptr ? p.dsum + i * width : nullptr;
    float dsum[Group::kShare];
    if (dsum_row != nullptr) Group::load(dsum_row, width, dsum);
    const auto count = static_cast<float>(width);
    float mean_g = 0;
    if constexpr (kCentred) mean_g = Group::template reduce<cuda::Sum>(sum_g) / count;
    const float mean_gn = Group::template reduce<cuda::Sum>(dot_gn) / count;
    Group::each(width, [&](int k, std::int64_t j) {
      const float n_j = Group::is_cached ? n[k] : s.normalised(row[j]);
      const float g = Group::at(dy_row, dy, k, j) * p.weight[j];
      const float of_norm = s.r * (g - mean_g - n_j * mean_gn);
      p.dx[i * width + j] =
          dsum_row != nullptr ? Group::at(dsum_row, dsum, k, j) + of_norm : of_norm;
    });
  }
  if constexpr (Group::is_cached) {
    if (dw_part != nullptr) store_part<Group>(dw_part, dw, width);
    if (kCentred && db_part != nullptr) store_part<Group>(db_part, db, width);
  }
}

// out[j] = (add ? out[j] : 0) + sum over c of parts[c, j]; a block per 32 columns.
constexpr int kPartLines = kRowThreads / cuda::kWarp;
__global__ void sum_parts_kernel(const float* parts, std::int64_t count, std::int64_t width,
                                 float* out, bool add) {
  GPU_SHARED(float, of_line, [kPartLines][cuda::kWarp]);
  const std::int64_t j = std::int64_t{blockIdx.x} * cuda::kWarp + cuda::lane();
  const int line = cuda::warp();
  float sum = 0;
  if (j < width) {
    for (std::int64_t c = line; c < count; c += kPartLines) sum += parts[c * width + j];
  }
  of_line[line][cuda::lane()] = sum;
  __syncthreads();
  if (line == 0 && j < width) {
    for (int l = 1; l < kPartLines; ++l) sum += of_line[l][cuda::lane()];
    out[j] = add ? out[j] + sum : sum;
  }
}

void sum_norm_parts(const View& parts, const View& out, bool add) {
  if (out.data == nullptr) return;
  const std::int64_t width = out.numel();
  GPU_LAUNCH(sum_parts_kernel, static_cast<unsigned>((width + cuda::kWarp - 1) / cuda::kWarp),
             kRowThreads, 0, parts.as<float>(), parts.size(0), width, out.as<float>(), add);
}

template <bool kCentred>
void norm_forward(ConstView x, ConstView delta, ConstView weight, ConstView bias, double eps,
                  View sum, View y) {
  if (x.numel() == 0) return;
  const std::int64_t width = weight.numel();
  NormInputs inputs{x.as<float>(), delta.as<float>(), weight.as<float>(), bias.as<float>()};
  inputs.sum = sum.as<float>(), inputs.y = y.as<float>();
  inputs.eps = eps, inputs.rows = x.numel() / width, inputs.width = width;
  visit_row_group(width, [&]<class Group>(Group) {
    GPU_LAUNCH((norm_forward_kernel<kCentred, Group>), Group::blocks(inputs.rows), kRowThreads, 0,
               inputs);
  });
}

// `blocks` of `rows_of_block` rows each: the number of parts.
template <bool kCentred>
void norm_backward(const NormGradients& gradients, std::int64_t blocks) {
  if (blocks == 0 || gradients.width == 0) return;
  visit_row_group(gradients.width, [&]<class Group>(Group) {
    GPU_LAUNCH((norm_backward_kernel<kCentred, Group>), static_cast<unsigned>(blocks), kRowThreads,
               0, gradients);
  });
}

}  // namespace
}  // namespace duet
