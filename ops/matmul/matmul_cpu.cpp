#include "ops/matmul/matmul_cpu.h"

#include <algorithm>
#include <array>

#include "ops/matmul/gemm_f64.h"
#include "ops/matmul/merge_dims.h"
#include "ops/pointwise/gelu_tanh.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/parallel.h"
#include "runtime/memory_ops_kernels.h"

namespace duet {
namespace {

constexpr std::int64_t kColumns = 64;    // of one chunk of column_sum
constexpr std::int64_t kRowBlock = 128;  // rows summed in T before the sum goes to double

// out[c] = or += sum_n x[n, c]
template <class T>
void column_sum_of(ConstView x, View out, bool accumulate) {
  const std::int64_t rows = x.size(0);
  const std::int64_t columns = x.size(1);
  const std::int64_t row_step = x.stride(0);
  const std::int64_t column_step = x.stride(1);
  parallel_for(columns, kColumns, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t n = end - begin;
    std::array<double, kColumns> total{};
    for (std::int64_t r0 = 0; r0 < rows; r0 += kRowBlock) {
      std::array<T, kColumns> part{};
      for (std::int64_t r = r0; r < std::min(rows, r0 + kRowBlock); ++r) {
        const T* row = x.as<T>() + r * row_step + begin * column_step;
        if (column_step == 1) {
          for (std::int64_t i = 0; i < n; ++i) part[static_cast<std::size_t>(i)] += row[i];
        } else {
          for (std::int64_t i = 0; i < n; ++i) {
            part[static_cast<std::size_t>(i)] += row[i * column_step];
          }
        }
      }
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += static_cast<double>(part[i]);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      T& o = out.as<T>()[(begin + i) * out.stride(0)];
      const double sum = total[static_cast<std::size_t>(i)];
      o = static_cast<T>(accumulate ? static_cast<double>(o) + sum : sum);
    }
  });
}

void column_sum(ConstView x, View out, bool accumulate) {
  visit_floating(x.dtype, "linear",
                 [&]<class T>(TypeTag<T>) { column_sum_of<T>(x, out, accumulate); });
}

// [N, C] whose rows are all the bias.
ConstView bias_rows(ConstView bias, const View& y) {
  return {bias.data, bias.dtype, y.shape, {0, bias.stride(0)}};
}

void linear(ConstView x, ConstView weight, ConstView bias, View y) {
  const ConstView wt = transposed(weight);
  const bool has_bias = bias.data != nullptr;
  const bool empty = y.numel() == 0 || x.size(1) == 0;
  if (has_bias && y.dtype == DType::f32 && !empty) {
    gemm(x, wt, y, {.bias = bias.as<float>()});
    return;
  }
  if (has_bias) memory_ops_cpu.copy(bias_rows(bias, y), y);
  gemm_cpu(x, wt, y, has_bias);
}

void weight_gradient(ConstView dy, ConstView x, View dw, View db, bool accumulate_dw,
                     bool accumulate_db) {
  if (dw.data != nullptr) gemm_cpu(transposed(dy), x, dw, accumulate_dw);
  if (db.data != nullptr) column_sum(dy, db, accumulate_db);
}

void linear_gelu_tanh(ConstView x, ConstView weight, ConstView bias, View h, View y) {
  linear(x, weight, bias, h);
  gelu_tanh_kernels().cpu->forward(h, y);
}

}  // namespace

void gemm_cpu(ConstView a, ConstView b, View c, bool accumulate) {
  if (c.numel() == 0) return;
  if (a.size(-1) == 0) {
    if (!accumulate) memory_ops_cpu.fill(c, 0.0);
    return;
  }
  merge_dims(a, b, c);
  if (c.dtype == DType::f32) {
    gemm(a, b, c, {.accumulate = accumulate});
  } else {
    gemm_f64(a, b, c, accumulate);
  }
}

extern const MatmulKernels matmul_cpu{gemm_cpu, linear, weight_gradient, linear_gelu_tanh};

}  // namespace duet
