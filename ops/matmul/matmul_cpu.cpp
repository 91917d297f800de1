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

std::span<std::byte> bytes_of(const View& scratch) {
  if (scratch.data == nullptr) return {};
  return {scratch.as<std::byte>(), static_cast<std::size_t>(scratch.numel())};
}

// Whether the product itself adds the bias.
bool product_takes_bias(const ConstView& x, const ConstView& bias, const View& y) {
  return bias.data != nullptr && y.dtype == DType::f32 && y.numel() > 0 && x.size(1) > 0;
}

void linear(ConstView x, ConstView weight, ConstView bias, View y, View scratch) {
  const ConstView wt = transposed(weight);
  if (product_takes_bias(x, bias, y)) {
    gemm(x, wt, y, {.bias = bias.as<float>(), .scratch = bytes_of(scratch)});
    return;
  }
  const bool has_bias = bias.data != nullptr;
  if (has_bias) memory_ops_cpu.copy(bias_rows(bias, y), y);
  gemm_cpu(x, wt, y, has_bias, scratch);
}

void weight_gradient(ConstView dy, ConstView x, View dw, View db, bool accumulate_dw,
                     bool accumulate_db, View scratch) {
  if (dw.data != nullptr) gemm_cpu(transposed(dy), x, dw, accumulate_dw, scratch);
  if (db.data != nullptr) column_sum(dy, db, accumulate_db);
}

void linear_gelu_tanh(ConstView x, ConstView weight, ConstView bias, View h, View y, View scratch) {
  linear(x, weight, bias, h, scratch);
  gelu_tanh_kernels().cpu->forward(h, y);
}

}  // namespace

std::size_t gemm_cpu_scratch(ConstView a, ConstView b, View c, bool accumulate) {
  if (c.numel() == 0 || a.size(-1) == 0 || c.dtype != DType::f32) return 0;
  merge_dims(a, b, c);
  return gemm_scratch_bytes(a, b, c, {.accumulate = accumulate});
}

std::size_t linear_cpu_scratch(const ConstView& x, const ConstView& weight, const ConstView& bias,
                               const View& y) {
  const ConstView wt = transposed(weight);
  if (product_takes_bias(x, bias, y)) {
    return gemm_scratch_bytes(x, wt, y, {.bias = bias.as<float>()});
  }
  return gemm_cpu_scratch(x, wt, y, bias.data != nullptr);
}

void gemm_cpu(ConstView a, ConstView b, View c, bool accumulate, View scratch) {
  if (c.numel() == 0) return;
  if (a.size(-1) == 0) {
    if (!accumulate) memory_ops_cpu.fill(c, 0.0);
    return;
  }
  merge_dims(a, b, c);
  if (c.dtype == DType::f32) {
    gemm(a, b, c, {.accumulate = accumulate, .scratch = bytes_of(scratch)});
  } else {
    gemm_f64(a, b, c, accumulate);
  }
}

extern const MatmulKernels matmul_cpu{gemm_cpu, linear, weight_gradient, linear_gelu_tanh};

}  // namespace duet
