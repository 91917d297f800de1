// scale(x, c) = c x
#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "ops/ops.h"
#include "ops/pointwise/elementwise.h"
#include "ops/pointwise/pointwise_cpu.h"
#include "ops/pointwise/strided_loop.h"
#include "runtime/kernel_table.h"

namespace duet {
namespace {

struct ScaleKernels {
  void (*scale)(ConstView x, double factor, View y);
};

void scale_cpu_kernel(ConstView x, double factor, View y) {
  visit_floating(x.dtype, "scale", [&]<class T>(TypeTag<T>) {
    const T c = static_cast<T>(factor);
    parallel_rows<2>(y.shape, {x.strides, y.strides},
                     [&](const auto& at, std::int64_t n, const auto& step, std::int64_t) {
                       const T* px = x.as<T>() + at[0];
                       T* py = y.as<T>() + at[1];
                       if constexpr (std::is_same_v<T, float>) {
                         if (step[0] == 1 && step[1] == 1) return scale_f32(px, c, py, n);
                       }
                       for (std::int64_t i = 0; i < n; ++i) py[i * step[1]] = c * px[i * step[0]];
                     });
  });
}

struct ScaleBody : ElementwiseBody<1, 1> {
  float factor;
  explicit ScaleBody(float c) : factor(c) {}
  template <int kWidth>
  DUET_HD void operator()(std::int64_t, const float (&in)[1][kWidth],
                          float (&out)[1][kWidth]) const {
    for (int i = 0; i < kWidth; ++i) out[0][i] = factor * in[0][i];
  }
};
void scale_cuda_kernel(ConstView x, double factor, View y) {
  elementwise(ScaleBody(static_cast<float>(factor)), y.shape, {x}, {y});
}

constexpr ScaleKernels scale_cpu{scale_cpu_kernel};
constexpr ScaleKernels scale_cuda{scale_cuda_kernel};
constexpr KernelTable<ScaleKernels> kernels{"scale", &scale_cpu, device_table(scale_cuda)};

struct Scale {
  static constexpr const char* name = "scale";
  struct Saved {};
  double factor;

  Tensor forward(Saved&, const Tensor& x) const { return scaled(x); }
  // dx = c dy
  Tensor backward(const Saved&, const Tensor& dy) const { return scaled(dy); }
  Tensor differentiable_backward(const Saved&, const Tensor& dy) const {
    return apply(Scale{factor}, dy);
  }

 private:
  Tensor scaled(const Tensor& x) const {
    Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    kernels.launch(x.device(), &ScaleKernels::scale, x.view(), factor, y.mutable_view());
    return y;
  }
};

}  // namespace

Tensor scale(const Tensor& x, double factor) {
  check_inputs("scale", {{"x", x}});
  return apply(Scale{factor}, x);
}

}  // namespace duet
