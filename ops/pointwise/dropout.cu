// dropout(x, p): keeps element i if draw i of the key is at least p, and divides it by 1 - p.
#include <cmath>

#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "ops/ops.h"
#include "ops/pointwise/elementwise.h"
#include "ops/pointwise/strided_loop.h"
#include "runtime/kernel_table.h"

namespace duet {
namespace {

struct DropoutKernels {
  void (*apply)(ConstView x, double p, RandomKey key, View y);
};

// One Philox block serves elements 4b .. 4b+3, counted row-major.
void dropout_cpu_kernel(ConstView x, double p, RandomKey key, View y) {
  visit_floating(x.dtype, "dropout", [&]<class T>(TypeTag<T>) {
    const T factor = p < 1 ? static_cast<T>(1 / (1 - p)) : T(0);
    parallel_rows<2>(y.shape, {x.strides, y.strides},
                     [&](const auto& at, std::int64_t n, const auto& step, std::int64_t first) {
                       const T* px = x.as<T>() + at[0];
                       T* py = y.as<T>() + at[1];
                       std::uint32_t words[4] = {};
                       std::int64_t drawn = -1;
                       for (std::int64_t i = 0; i < n; ++i) {
                         const std::int64_t index = first + i;
                         if (index / 4 != drawn) {
                           drawn = index / 4;
                           random_block(key, static_cast<std::uint32_t>(drawn), words);
                         }
                         const bool keep = static_cast<double>(to_unit(words[index % 4])) >= p;
                         py[i * step[1]] = keep ? px[i * step[0]] * factor : T(0);
                       }
                     });
  });
}

struct DropoutBody : ElementwiseBody<1, 1> {
  RandomKey key;
  std::uint32_t threshold;  // a draw of 24 bits is kept from here on
  float factor;
  DropoutBody(const RandomKey& k, double p)
      : key(k),
        threshold(static_cast<std::uint32_t>(std::ceil(p * 0x1p24))),  // exact: the CPU's mask
        factor(p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0F) {}

  // Groups of four begin at multiples of 4: one Philox block serves them.
  template <int kWidth>
  DUET_HD void operator()(std::int64_t first, const float (&in)[1][kWidth],
                          float (&out)[1][kWidth]) const {
    std::uint32_t words[4];
    random_block(key, static_cast<std::uint32_t>(first / 4), words);
    for (int i = 0; i < kWidth; ++i) {
      std::uint32_t word = words[i];
      for (int j = 1; kWidth == 1 && j < 4; ++j) word = first % 4 == j ? words[j] : word;
      out[0][i] = word >> 8 >= threshold ? in[0][i] * factor : 0.0F;
    }
  }
};
void dropout_cuda_kernel(ConstView x, double p, RandomKey key, View y) {
  elementwise(DropoutBody(key, p), y.shape, {x}, {y});
}

constexpr DropoutKernels dropout_cpu{dropout_cpu_kernel};
constexpr DropoutKernels dropout_cuda{dropout_cuda_kernel};
constexpr KernelTable<DropoutKernels> kernels{"dropout", &dropout_cpu, device_table(dropout_cuda)};

struct Dropout {
  static constexpr const char* name = "dropout";
  struct Saved {};
  double p;
  RandomKey key;

  Tensor forward(Saved&, const Tensor& x) const { return masked(x); }
  // dx = mask dy / (1 - p), with the mask drawn again
  Tensor backward(const Saved&, const Tensor& dy) const { return masked(dy); }
  Tensor differentiable_backward(const Saved&, const Tensor& dy) const {
    return apply(Dropout{p, key}, dy);
  }

 private:
  Tensor masked(const Tensor& x) const {
    Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    kernels.launch(x.device(), &DropoutKernels::apply, x.view(), p, key, y.mutable_view());
    return y;
  }
};

}  // namespace

Tensor dropout(const Tensor& x, double p, const RandomKey& key) {
  check_inputs("dropout", {{"x", x}});
  check(p >= 0 && p <= 1, ErrorKind::usage, "dropout: p is out of range: got ", p,
        ", expected a probability in [0, 1]");
  constexpr std::int64_t kStream = std::int64_t{1} << 34;
  check(x.numel() <= kStream, ErrorKind::shape, "dropout: ", x.shape(), " has more than ", kStream,
        " elements, the length of one random stream; use a key per part");
  return p == 0 ? x : apply(Dropout{p, key}, x);
}

}  // namespace duet
