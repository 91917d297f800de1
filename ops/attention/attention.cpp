// Scaled dot-product attention: checks, what is saved, and the kernels' workspace.
#include "ops/attention/attention.h"

#include <array>
#include <cmath>

#include "autograd/op.h"
#include "ops/computing_dtype.h"
#include "ops/ops.h"
#include "runtime/cpu/parallel.h"
#include "runtime/kernel_table.h"

namespace duet {
namespace {

constexpr KernelTable<AttentionKernels> kernels{"attention", &attention_cpu,
                                                DUET_CUDA_TABLE(attention_cuda)};

// Multiply-adds below which waking other threads costs more than it saves.
constexpr std::int64_t kSerialWork = 1 << 19;

Tensor forward_workspace(const AttentionInputs& in, const Tensor& q) {
  if (q.device().kernels() == DeviceType::cuda) return Tensor::empty({0}, q.dtype(), q.device());
  // one row for each thread that will have work
  return Tensor::empty({attention_threads(in), attention_workspace(in).forward}, q.dtype(),
                       q.device());
}
Tensor backward_workspace(const AttentionInputs& in, const Tensor& q) {
  if (q.device().kernels() == DeviceType::cuda) {  // a number per row of scores
    return Tensor::empty({in.batch() * in.heads() * in.queries()}, q.dtype(), q.device());
  }
  return Tensor::empty({attention_threads(in), attention_workspace(in).backward}, q.dtype(),
                       q.device());
}

struct Attention {
  static constexpr const char* name = "attention";
  struct Saved {
    SavedTensor q, k, v, first_visible, out, lse;
  };
  double scale;
  bool causal;
  Tensor first_visible;  // handed to Saved in forward

  AttentionInputs inputs(const Tensor& q, const Tensor& k, const Tensor& v,
                         const Tensor& first) const {
    AttentionInputs in{q.view(), k.view(), v.view(), {}, scale, causal};
    if (first.defined()) in.first_visible = first.view();
    return in;
  }

  // s_ij = scale q_i . k_j over the visible j ; p_ij = exp(s_ij - lse_i), lse_i = log sum_j
  // exp(s_ij) out_i = sum_j p_ij v_j
  Tensor forward(Saved& saved, const Tensor& q, const Tensor& k, const Tensor& v) {
    const AttentionInputs in = inputs(q, k, v, first_visible);
    Tensor out = Tensor::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.dtype(), q.device());
    Tensor lse = Tensor::empty({q.size(0), q.size(2), q.size(1)}, q.dtype(), q.device());
    Tensor workspace = forward_workspace(in, q);
    kernels.launch(q.device(), &AttentionKernels::forward, in, out.mutable_view(),
                   lse.mutable_view(), workspace.mutable_view());
    saved.q.save_input(q);
    saved.k.save_input(k);
    saved.v.save_input(v);
    saved.first_visible.save_input(first_visible);
    saved.out.save_output(out);
    saved.lse.save_output(lse);
    first_visible = Tensor();
    return out;
  }

  // dv_j = sum_i p_ij do_i ; dp_ij = do_i . v_j ; delta_i = sum_j p_ij dp_ij = do_i . out_i
  // ds_ij = p_ij (dp_ij - delta_i) ; dq_i = scale sum_j ds_ij k_j ; dk_j = scale sum_i ds_ij q_i
  std::array<Tensor, 3> backward(const Saved& saved, const Tensor& grad_out,
                                 const GradRequest& request) const {
    const Tensor &q = saved.q.get(name), &k = saved.k.get(name), &v = saved.v.get(name);
    const Tensor &out = saved.out.get(name), &lse = saved.lse.get(name);
    const AttentionInputs in = inputs(q, k, v, saved.first_visible.get(name));
    std::array<Tensor, 3> grads;
    AttentionGrads views;
    const std::array<const Tensor*, 3> of{&q, &k, &v};
    const std::array<View*, 3> to{&views.dq, &views.dk, &views.dv};
    for (std::size_t i = 0; i < grads.size(); ++i) {
      if (!request.needed(i)) continue;
      grads[i] = Tensor::empty_like(*of[i]);
      *to[i] = grads[i].mutable_view();
    }
    Tensor workspace = backward_workspace(in, q);
    kernels.launch(q.device(), &AttentionKernels::backward, in, out.view(), lse.view(),
                   grad_out.view(), views, workspace.mutable_view());
    return grads;
  }
};

void check_inputs(const Tensor& q, const Tensor& k, const Tensor& v,
                  const AttentionOptions& options) {
  check(q.ndim() == 4 && k.ndim() == 4 && v.ndim() == 4, ErrorKind::shape,
        "attention: dimensions: got q ", q.shape(), ", k ", k.shape(), ", v ", v.shape(),
        ", expected [B, Tq, Hq, D], [B, Tk, Hkv, D], [B, Tk, Hkv, Dv]");
  check(k.size(0) == q.size(0) && v.size(0) == q.size(0), ErrorKind::shape,
        "attention: batch sizes differ: q is ", q.shape(), ", k is ", k.shape(), ", v is ",
        v.shape(), "; all three share one batch");
  check(k.size(3) == q.size(3), ErrorKind::shape, "attention: head widths differ: q is ", q.shape(),
        ", k is ", k.shape(), "; the last sizes must be equal");
  check(v.size(1) == k.size(1) && v.size(2) == k.size(2), ErrorKind::shape,
        "attention: keys and values differ: k is ", k.shape(), ", v is ", v.shape(),
        "; times and heads must be equal");
  check(k.size(2) > 0 ? q.size(2) % k.size(2) == 0 : q.size(2) == 0, ErrorKind::shape,
        "attention: query heads: got ", q.size(2), ", expected a multiple of the ", k.size(2),
        " key/value heads");
  check_no_f64_on_cuda("attention", q.dtype(), q.device());
  check(computes(q.dtype(), q.device()), ErrorKind::dtype,
        "attention: dtype is not supported: got ", q.dtype(), ", expected f32 or f64");
  check(k.dtype() == q.dtype() && v.dtype() == q.dtype(), ErrorKind::dtype,
        "attention: dtypes differ: q is ", q.dtype(), ", k is ", k.dtype(), ", v is ", v.dtype(),
        "; convert to one");
  check(k.device() == q.device() && v.device() == q.device(), ErrorKind::device,
        "attention: devices differ: q is on ", q.device(), ", k on ", k.device(), ", v on ",
        v.device());
  check(std::isfinite(options.scale), ErrorKind::usage, "attention: scale: got ", options.scale,
        ", expected a finite number, or 0 for 1/sqrt(D)");
  if (q.device().kernels() == DeviceType::cuda) {
    const std::int64_t width = std::max(q.size(3), v.size(3));
    const std::int64_t rows =
        q.size(0) * std::max(q.size(2), k.size(2)) * std::max(q.size(1), k.size(1));
    check(width <= kCudaWidth, ErrorKind::shape,
          "attention: head width is too large for cuda: got ", width, ", expected <= ", kCudaWidth,
          "; use more heads, or --device cpu");
    check(rows <= kCudaRows, ErrorKind::shape,
          "attention: batch, heads and time are too many for cuda: got ", rows,
          " rows of scores, expected <= ", kCudaRows, "; use a smaller batch");
  }
  const Tensor& first = options.first_visible;
  if (!first.defined()) return;
  check(first.shape() == Shape{q.size(0), q.size(1)}, ErrorKind::shape,
        "attention: first_visible: got ", first.shape(), ", expected [B, Tq] = [", q.size(0), ", ",
        q.size(1), "]");
  check(first.dtype() == DType::i32, ErrorKind::dtype, "attention: first_visible: got ",
        first.dtype(), ", expected i32");
  check(first.device() == q.device(), ErrorKind::device, "attention: first_visible is on ",
        first.device(), ", q on ", q.device());
}

}  // namespace

std::int64_t attention_threads(const AttentionInputs& in) {
  const std::int64_t pairs = in.batch() * in.heads() * in.queries() * in.keys();
  if (pairs * (in.width() + in.value_width()) < kSerialWork) return 1;
  return std::min<std::int64_t>(num_threads(), in.units());
}

AttentionWorkspace attention_workspace(const AttentionInputs& in) {
  if (in.q.dtype != DType::f32) return {};  // plain loops need none
  const std::int64_t keys = round_up(in.keys(), kKeyTile);
  const std::int64_t queries = round_up(in.queries(), kQueryTile);
  const std::int64_t width = round_up(in.width(), kPanel);
  const std::int64_t value_width = round_up(in.value_width(), kPanel);
  AttentionWorkspace size;
  // Packed keys and values of one head; one tile each of scores, queries, output, row statistics.
  size.forward =
      keys * (in.width() + value_width) + kQueryTile * (kKeyTile + width + value_width + 2);
  // Packed queries and output gradients of one head, its query gradients, row statistics; one tile
  // of keys (twice), values, their gradients, and of scores and their gradients.
  size.backward = queries * (2 * width + value_width + 2) +
                  kKeyTile * (2 * width + in.width() + in.value_width() + value_width) +
                  2 * kQueryTile * kKeyTile;
  return size;
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options) {
  check_inputs(q, k, v, options);
  const auto width = static_cast<double>(std::max<std::int64_t>(1, q.size(3)));
  const double scale = options.scale != 0 ? options.scale : 1 / std::sqrt(width);
  return apply(Attention{scale, options.causal, options.first_visible}, q, k, v);
}

}  // namespace duet
