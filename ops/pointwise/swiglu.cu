// swiglu(gate_up) = silu(gate) * up; gate and up are the halves of the last dim.
#include "ops/check_inputs.h"
#include "ops/ops.h"
#include "ops/pointwise/silu.h"

namespace duet {
namespace {

struct SwigluKernels {
  void (*forward)(ConstView gate, ConstView up, View y);
  void (*backward)(ConstView gate, ConstView up, ConstView dy, View dgate, View dup);
};

void forward_cpu(ConstView gate, ConstView up, View y) {
  visit_floating(y.dtype, "swiglu", [&]<class T>(TypeTag<T>) {
    parallel_rows<3>(y.shape, {gate.strides, up.strides, y.strides},
                     [&](const auto& at, std::int64_t n, const auto& step, std::int64_t) {
                       const T* pg = gate.as<T>() + at[0];
                       const T* pu = up.as<T>() + at[1];
                       T* py = y.as<T>() + at[2];
                       if constexpr (std::is_same_v<T, float>) {
                         if (step[0] == 1 && step[1] == 1 && step[2] == 1)
                           return swiglu_f32(pg, pu, py, n);
                       }
                       for (std::int64_t i = 0; i < n; ++i) {
                         py[i * step[2]] = Silu::f(pg[i * step[0]]) * pu[i * step[1]];
                       }
                     });
  });
}

void backward_cpu(ConstView gate, ConstView up, ConstView dy, View dgate, View dup) {
  visit_floating(dy.dtype, "swiglu", [&]<class T>(TypeTag<T>) {
    parallel_rows<5>(dgate.shape,
                     {gate.strides, up.strides, dy.strides, dgate.strides, dup.strides},
                     [&](const auto& at, std::int64_t n, const auto& step, std::int64_t) {
                       const T* pg = gate.as<T>() + at[0];
                       const T* pu = up.as<T>() + at[1];
                       const T* pdy = dy.as<T>() + at[2];
                       T* pdg = dgate.as<T>() + at[3];
                       T* pdu = dup.as<T>() + at[4];
                       if constexpr (std::is_same_v<T, float>) {
                         if (step[0] == 1 && step[1] == 1 && step[2] == 1 && step[3] == 1) {
                           return swiglu_grad_f32(pg, pu, pdy, pdg, pdu, n);
                         }
                       }
                       for (std::int64_t i = 0; i < n; ++i) {
                         const T g = pg[i * step[0]], u = pu[i * step[1]], d = pdy[i * step[2]];
                         pdg[i * step[3]] = d * u * Silu::df(g);
                         pdu[i * step[4]] = d * Silu::f(g);
                       }
                     });
  });
}

struct ForwardBody : ElementwiseBody<2, 1> {
  template <int kWidth>
  DUET_HD void operator()(std::int64_t, const float (&in)[2][kWidth],
                          float (&out)[1][kWidth]) const {
    for (int i = 0; i < kWidth; ++i) out[0][i] = Silu::f(in[0][i]) * in[1][i];
  }
};
struct BackwardBody : ElementwiseBody<3, 2> {
  template <int kWidth>
  DUET_HD void operator()(std::int64_t, const float (&in)[3][kWidth],
                          float (&out)[2][kWidth]) const {
    for (int i = 0; i < kWidth; ++i) {
      const float gate = in[0][i], up = in[1][i], dy = in[2][i];
      out[0][i] = dy * up * Silu::df(gate);
      out[1][i] = dy * Silu::f(gate);
    }
  }
};
void forward_cuda(ConstView gate, ConstView up, View y) {
  elementwise(ForwardBody{}, y.shape, {gate, up}, {y});
}
void backward_cuda(ConstView gate, ConstView up, ConstView dy, View dgate, View dup) {
  elementwise(BackwardBody{}, dgate.shape, {gate, up, dy}, {dgate, dup});
}

constexpr SwigluKernels swiglu_cpu{forward_cpu, backward_cpu};
constexpr SwigluKernels swiglu_cuda{forward_cuda, backward_cuda};
constexpr KernelTable<SwigluKernels> kernels{"swiglu", &swiglu_cpu, device_table(swiglu_cuda)};

struct Swiglu {
  static constexpr const char* name = "swiglu";
  struct Saved {
    SavedTensor gate_up;
  };
  static Tensor half(const Tensor& t, int which) {
    const std::int64_t f = t.size(-1) / 2;
    return t.slice_view(-1, which * f, (which + 1) * f);
  }

  Tensor forward(Saved& saved, const Tensor& gate_up) const {
    Shape shape = gate_up.shape();
    shape[shape.ndim() - 1] /= 2;
    Tensor y = Tensor::empty(shape, gate_up.dtype(), gate_up.device());
    kernels.launch(y.device(), &SwigluKernels::forward, half(gate_up, 0).view(),
                   half(gate_up, 1).view(), y.mutable_view());
    saved.gate_up.save_input(gate_up);
    return y;
  }
  // dgate = dy up silu'(gate), dup = dy silu(gate)
  Tensor backward(const Saved& saved, const Tensor& dy) const {
    const Tensor& gate_up = saved.gate_up.get(name);
    const Tensor dx = Tensor::empty(gate_up.shape(), gate_up.dtype(), gate_up.device());
    Tensor dgate = half(dx, 0), dup = half(dx, 1);
    kernels.launch(dx.device(), &SwigluKernels::backward, half(gate_up, 0).view(),
                   half(gate_up, 1).view(), dy.view(), dgate.mutable_view(), dup.mutable_view());
    return dx;
  }
  Tensor differentiable_backward(const Saved& saved, const Tensor& dy) const {
    const std::int64_t f = dy.size(-1);
    const auto [gate, up] =
        split(saved.gate_up.with_edge(name), -1, std::array<std::int64_t, 2>{f, f});
    return cat({apply(PointwiseGrad<Silu>{}, gate, mul(dy, up)), mul(dy, silu(gate))}, -1);
  }
};

}  // namespace

Tensor swiglu(const Tensor& gate_up) {
  check_inputs("swiglu", {{"gate_up", gate_up}});
  check(gate_up.ndim() >= 1 && gate_up.size(-1) % 2 == 0, ErrorKind::shape,
        "swiglu: the last dim holds gate and up: got ", gate_up.shape(),
        ", expected an even last dim");
  return apply(Swiglu{}, gate_up);
}

}  // namespace duet
