#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "ops/coupling/coupling.h"
#include "ops/ops.h"
#include "runtime/cpu/parallel.h"
#include "runtime/kernel_table.h"
#include "runtime/memory_ops.h"

namespace duet {
namespace {

constexpr KernelTable<CouplingKernels> kernels{"coupling_euler", &coupling_euler_cpu};

// The kernels want whole rows [D] of a head.
Tensor with_whole_rows(const Tensor& t) {
  return t.size(-1) <= 1 || t.stride(-1) == 1 ? t : clone(t);
}

struct CouplingEuler {
  static constexpr const char* name = "coupling_euler";
  struct Saved {
    SavedTensor q, k, w1, w2, dt;  // the start of the trajectory: bytes do not grow with n
  };
  int steps;

  CouplingSizes sizes(const Tensor& q, const Tensor& k, const Tensor& w1) const {
    return {q.size(0), q.size(1), q.size(2), k.size(2), w1.size(0), q.size(3), w1.size(1), steps};
  }
  // What the kernels may use: a scratch area per thread, no more of them than pieces of work.
  static Tensor workspace(const CouplingSizes& s, std::int64_t threads, bool backward,
                          const Tensor& q) {
    return Tensor::empty({CouplingWorkspace(s, threads, backward).size}, q.dtype(), q.device());
  }
  static std::int64_t threads_for(const CouplingSizes& s) {
    return std::min<std::int64_t>(num_threads(), s.chunks().count);
  }

  // n times, per token and head:  x' = x + dt k,  k' = k + dt f(x),  f(x) = W2 silu(W1 x),
  // where x is the query, or the mean of the queries that share the key, all moved alike.
  std::array<Tensor, 2> forward(Saved& saved, const Tensor& q, const Tensor& k, const Tensor& w1,
                                const Tensor& w2, const Tensor& dt) const {
    saved.q.save_input(q);
    saved.k.save_input(k);
    saved.w1.save_input(w1);
    saved.w2.save_input(w2);
    saved.dt.save_input(dt);
    const CouplingSizes s = sizes(q, k, w1);
    const std::int64_t threads = threads_for(s);
    Tensor q_out = Tensor::empty(q.shape(), q.dtype(), q.device());
    Tensor k_out = Tensor::empty(k.shape(), k.dtype(), k.device());
    Tensor space = workspace(s, threads, false, q);
    kernels.launch(q.device(), &CouplingKernels::forward, s, with_whole_rows(q).view(),
                   with_whole_rows(k).view(), contiguous_copy(w1).view(),
                   contiguous_copy(w2).view(), contiguous_copy(dt).view(), q_out.mutable_view(),
                   k_out.mutable_view(), space.mutable_view(), threads);
    return {q_out, k_out};
  }

  // Runs the steps again, keeping x, k and W1 x of each for one tile of tokens, then goes back
  // through them. The formulas stand at EulerStep::backward (ops/coupling/euler_step.h).
  std::array<Tensor, 5> backward(const Saved& saved, const std::vector<Tensor>& dy,
                                 const GradRequest& request) const {
    const Tensor q = with_whole_rows(saved.q.get(name));
    const Tensor k = with_whole_rows(saved.k.get(name));
    const Tensor w1 = contiguous_copy(saved.w1.get(name));
    const Tensor w2 = contiguous_copy(saved.w2.get(name));
    const Tensor dt = contiguous_copy(saved.dt.get(name));
    const CouplingSizes s = sizes(q, k, w1);
    const std::int64_t threads = threads_for(s);
    const Tensor dq_out = dy[0].defined() ? with_whole_rows(dy[0]) : Tensor();
    const Tensor dk_out = dy[1].defined() ? with_whole_rows(dy[1]) : Tensor();
    Tensor dq = empty_gradient(request, 0, q);
    Tensor dk = empty_gradient(request, 1, k);
    WeightGradient dw1(request, 2, w1);
    WeightGradient dw2(request, 3, w2);
    WeightGradient ddt(request, 4, dt);
    Tensor space = workspace(s, threads, true, q);
    const CouplingKernels::Gradients gradients{dq_out.defined() ? dq_out.view() : ConstView{},
                                               dk_out.defined() ? dk_out.view() : ConstView{},
                                               view_or_null(dq),
                                               view_or_null(dk),
                                               dw1.view(),
                                               dw2.view(),
                                               ddt.view(),
                                               dw1.add,
                                               dw2.add,
                                               ddt.add};
    kernels.launch(q.device(), &CouplingKernels::backward, s, q.view(), k.view(), w1.view(),
                   w2.view(), dt.view(), gradients, space.mutable_view(), threads);
    return {dq, dk, dw1.tensor, dw2.tensor, ddt.tensor};
  }
};

}  // namespace

std::array<Tensor, 2> coupling_euler(const Tensor& q, const Tensor& k, const Tensor& w1,
                                     const Tensor& w2, const Tensor& dt,
                                     const CouplingOptions& options) {
  const char* op = "coupling_euler";
  check_inputs(op, {{"q", q}, {"k", k}, {"w1", w1}, {"w2", w2}, {"dt", dt}});
  check(q.ndim() == 4, ErrorKind::shape, op, ": q is ", q.shape(), ", expected [B, T, Hq, D]");
  check(k.ndim() == 4 && k.size(0) == q.size(0) && k.size(1) == q.size(1) && k.size(3) == q.size(3),
        ErrorKind::shape, op, ": k is ", k.shape(), ", expected [", q.size(0), ", ", q.size(1),
        ", Hkv, ", q.size(3), "], as q ", q.shape());
  check(k.size(2) >= 1 && q.size(2) % k.size(2) == 0 && q.size(2) >= 1, ErrorKind::shape, op, ": ",
        q.size(2), " query heads do not share ", k.size(2), " key heads evenly; got q ", q.shape(),
        ", k ", k.shape());
  check(w1.ndim() == 3 && (w1.size(0) == 1 || w1.size(0) == k.size(2)) && w1.size(2) == q.size(3),
        ErrorKind::shape, op, ": w1 is ", w1.shape(), ", expected [", k.size(2), " or 1, h, ",
        q.size(3), "]");
  const Shape w2_shape{w1.size(0), w1.size(2), w1.size(1)};
  check(w2.shape() == w2_shape, ErrorKind::shape, op, ": w2 is ", w2.shape(), ", expected ",
        w2_shape, ", as w1 is ", w1.shape());
  check(dt.shape() == Shape{w1.size(0)}, ErrorKind::shape, op, ": dt is ", dt.shape(),
        ", expected ", Shape{w1.size(0)}, ", one per net");
  check(options.steps >= 1, ErrorKind::usage, op, ": steps is ", options.steps,
        ", expected 1 or more");
  return apply(CouplingEuler{options.steps}, q, k, w1, w2, dt);
}

}  // namespace duet
