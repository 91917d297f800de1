// The couplings as ops: checks, what each saves, and the launch of its kernels. The equations and
// their ways back stand with the kernels, in pair_steps.h and affine_walk.h.
#include <optional>
#include <utility>

#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "ops/coupling/check_coupling.h"
#include "ops/coupling/coupling.h"
#include "ops/ops.h"
#include "ops/rope/rope.h"
#include "ops/whole_rows.h"
#include "runtime/cpu/parallel.h"
#include "runtime/kernel_table.h"
#include "runtime/memory_ops.h"

namespace duet {
namespace {

ConstView view_or_none(const Tensor& t) { return t.defined() ? t.view() : ConstView{}; }

// A GPU's block holds whole rows, and one of hidden units for each token. Throws Error(shape) for
// more than its kernels are made for.
void check_kernel_sizes(const char* op, const Tensor& q, const Tensor& k, const Tensor& w1) {
  if (q.device().kernels() != DeviceType::cuda) return;
  const auto check_size = [op](const char* what, std::int64_t size, std::int64_t most) {
    check(size <= most, ErrorKind::shape, op, ": ", what, " is too large for cuda: got ", size,
          ", expected <= ", most,
          "; use more heads or a smaller net, no coupling, or --device cpu");
  };
  check_size("head width", q.size(3), CouplingCudaLayout::kMaxWidth);
  check_size("hidden width", w1.size(-2), CouplingCudaLayout::kMaxHidden);
  check_size("number of tokens in all key heads", k.size(0) * k.size(1) * k.size(2),
             CouplingCudaLayout::kMaxRows);
}

// The options with the rotation's rows of these tokens alone.
CouplingOptions at_tokens_of(const Tensor& q, CouplingOptions options) {
  if (!options.rotation.defined()) return options;
  const std::int64_t begin = options.position;
  options.rotation = options.rotation.slice_view(0, begin, begin + q.size(1));
  options.position = 0;
  return options;
}

// One call of the kernels. k is undefined for uncoupled, dt for affine. `rotation`, where defined,
// holds the rows of these tokens.
struct Call {
  const char* op;
  CouplingSizes sizes;
  Tensor q, k, w1, w2, dt, rotation;

  Call(const char* name, CouplingMap map, const CouplingOptions& options, std::int64_t key_heads,
       const Tensor& query, const Tensor& key, const Tensor& weight1, const Tensor& weight2,
       const Tensor& step_size, const Tensor& rotated_by)
      : op(name),
        sizes{map,           query.size(0),   query.size(1), query.size(2),
              key_heads,     weight1.size(0), query.size(3), weight1.size(-2),
              options.steps, options.run_back},
        q(with_whole_rows(query)),
        k(with_whole_rows(key)),
        w1(contiguous_copy(weight1)),
        w2(contiguous_copy(weight2)),
        rotation(rotated_by) {
    if (step_size.defined()) dt = contiguous_copy(step_size);
  }

  CouplingKernels::Inputs inputs() const {
    return {q.view(),  view_or_none(k),  w1.view(),
            w2.view(), view_or_none(dt), kernels_rotate() ? rotation.view() : ConstView{}};
  }
  // Whether the kernels rotate the rows, or rope's kernel does, behind them and before them: a
  // GPU's rotate heads whose halves are whole float4.
  bool kernels_rotate() const {
    return rotation.defined() && q.device().kernels() == DeviceType::cuda &&
           rotation.size(2) % 4 == 0 && rotation.is_contiguous() &&
           reinterpret_cast<std::uintptr_t>(rotation.view().data) % 16 == 0;
  }
  // What comes rotated to backward, as the kernels want it. Undefined stays undefined.
  Tensor rotated_back(const Tensor& x) const {
    if (!x.defined() || !rotation.defined() || kernels_rotate()) return x;
    return rotated(x, rotation, 0, /*inverse=*/true);
  }
  // A scratch area per thread, no more of them than pieces of work.
  std::int64_t threads() const {
    return std::min<std::int64_t>(num_threads(), sizes.chunks().count);
  }
  Tensor workspace(bool backward) const {
    const std::int64_t size = q.device().kernels() == DeviceType::cuda
                                  ? CouplingCudaLayout(sizes, backward).size
                                  : CouplingWorkspace(sizes, threads(), backward).size;
    return Tensor::empty({size}, q.dtype(), q.device());
  }
  KernelTable<CouplingKernels> kernels() const {
    return {op, &coupling_cpu, DUET_CUDA_TABLE(coupling_cuda)};
  }

  std::array<Tensor, 2> forward() const {
    Tensor q_out = Tensor::empty(q.shape(), q.dtype(), q.device());
    Tensor k_out = k.defined() ? Tensor::empty(k.shape(), k.dtype(), k.device()) : Tensor();
    Tensor space = workspace(false);
    kernels().launch(q.device(), &CouplingKernels::forward, sizes, inputs(), q_out.mutable_view(),
                     view_or_null(k_out), space.mutable_view(), threads());
    if (rotation.defined() && !kernels_rotate()) {
      rotate_in_place(q_out, rotation, 0);
      if (k_out.defined()) rotate_in_place(k_out, rotation, 0);
    }
    return {q_out, k_out};
  }

  // `input`: which input of the op q, k, w1, w2, dt are; -1: none of them.
  std::array<Tensor, 5> backward(const Tensor& q_gradient, const Tensor& k_gradient,
                                 const GradRequest& request, const std::array<int, 5>& input) {
    const auto index = [&](std::size_t i) { return static_cast<std::size_t>(input[i]); };
    const Tensor gq = with_whole_rows(rotated_back(q_gradient));
    const Tensor gk = with_whole_rows(rotated_back(k_gradient));
    if (sizes.run_back) {
      q = rotated_back(q);
      k = rotated_back(k);
    }
    Tensor dq = empty_gradient(request, index(0), q);
    Tensor dk = input[1] < 0 ? Tensor() : empty_gradient(request, index(1), k);
    WeightGradient dw1(request, index(2), w1);
    WeightGradient dw2(request, index(3), w2);
    std::optional<WeightGradient> ddt;
    if (input[4] >= 0) ddt.emplace(request, index(4), dt);
    Tensor space = workspace(true);
    const CouplingKernels::Gradients gradients{
        view_or_none(gq), view_or_none(gk), view_or_null(dq),           view_or_null(dk),
        dw1.view(),       dw2.view(),       ddt ? ddt->view() : View{}, dw1.add,
        dw2.add,          ddt && ddt->add};
    kernels().launch(q.device(), &CouplingKernels::backward, sizes, inputs(), gradients,
                     space.mutable_view(), threads());
    return {dq, dk, dw1.tensor, dw2.tensor, ddt ? ddt->tensor : Tensor()};
  }
};

// What is kept for backward: the pair before the first step, from which backward runs the steps
// again, or the pair after the last one, from which it runs back. Either way the bytes do not grow
// with the steps.
struct SavedPair {
  SavedTensor q, k;

  std::array<Tensor, 2> forward(const Call& call, const Tensor& q_in, const Tensor& k_in) {
    std::array<Tensor, 2> out = call.forward();
    if (call.sizes.run_back) {
      q.save_output(out[0]);
      k.save_output(out[1]);
    } else {
      q.save_input(q_in);
      k.save_input(k_in);
    }
    return out;
  }
};

// The rotation is kept for backward as one of the inputs, and not by the op itself.
Tensor hand_over(Tensor& rotation, SavedTensor& saved) {
  saved.save_input(rotation);
  return std::exchange(rotation, Tensor());
}

// What the coupling leaves alone comes back rotated as well.
Tensor passed_on(const Tensor& x, const CouplingOptions& options) {
  return options.rotation.defined() ? rope(x, options.rotation, options.position) : x;
}

constexpr const char* name_of(CouplingMap map) {
  return map == CouplingMap::euler      ? "coupling_euler"
         : map == CouplingMap::leapfrog ? "coupling_leapfrog"
                                        : "coupling_symplectic_euler";
}

// euler, leapfrog, symplectic_euler.
template <CouplingMap kMap>
struct CouplingPair {
  static constexpr const char* name = name_of(kMap);
  struct Saved {
    SavedPair pair;
    SavedTensor w1, w2, dt, rotation;
  };
  CouplingOptions options;  // the rotation is handed to Saved in forward

  std::array<Tensor, 2> forward(Saved& saved, const Tensor& q, const Tensor& k, const Tensor& w1,
                                const Tensor& w2, const Tensor& dt) {
    saved.w1.save_input(w1);
    saved.w2.save_input(w2);
    saved.dt.save_input(dt);
    const Tensor rotation = hand_over(options.rotation, saved.rotation);
    return saved.pair.forward({name, kMap, options, k.size(2), q, k, w1, w2, dt, rotation}, q, k);
  }
  std::array<Tensor, 5> backward(const Saved& saved, const std::vector<Tensor>& dy,
                                 const GradRequest& request) const {
    const Tensor k = saved.pair.k.get(name);
    Call call(name, kMap, options, k.size(2), saved.pair.q.get(name), k, saved.w1.get(name),
              saved.w2.get(name), saved.dt.get(name), saved.rotation.get(name));
    return call.backward(dy[0], dy[1], request, {0, 1, 2, 3, 4});
  }
};

// x is the queries, or the keys.
struct CouplingUncoupled {
  static constexpr const char* name = "coupling_uncoupled";
  struct Saved {
    SavedTensor x, w1, w2, dt, rotation;
  };
  CouplingOptions options;
  std::int64_t key_heads;

  Call call(const Tensor& x, const Tensor& w1, const Tensor& w2, const Tensor& dt,
            const Tensor& rotation) const {
    return {name, CouplingMap::uncoupled, options, key_heads, x, Tensor(), w1, w2, dt, rotation};
  }
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& w1, const Tensor& w2,
                 const Tensor& dt) {
    saved.x.save_input(x);
    saved.w1.save_input(w1);
    saved.w2.save_input(w2);
    saved.dt.save_input(dt);
    return call(x, w1, w2, dt, hand_over(options.rotation, saved.rotation)).forward()[0];
  }
  std::array<Tensor, 4> backward(const Saved& saved, const Tensor& dy,
                                 const GradRequest& request) const {
    const auto [dx, none, dw1, dw2, ddt] =
        call(saved.x.get(name), saved.w1.get(name), saved.w2.get(name), saved.dt.get(name),
             saved.rotation.get(name))
            .backward(dy, Tensor(), request, {0, -1, 1, 2, 3});
    return {dx, dw1, dw2, ddt};
  }
};

struct CouplingAffine {
  static constexpr const char* name = "coupling_affine";
  struct Saved {
    SavedPair pair;
    SavedTensor w1, w2, rotation;
  };
  CouplingOptions options;

  std::array<Tensor, 2> forward(Saved& saved, const Tensor& q, const Tensor& k, const Tensor& w1,
                                const Tensor& w2) {
    saved.w1.save_input(w1);
    saved.w2.save_input(w2);
    const Tensor rotation = hand_over(options.rotation, saved.rotation);
    return saved.pair.forward(
        {name, CouplingMap::affine, options, k.size(2), q, k, w1, w2, Tensor(), rotation}, q, k);
  }
  std::array<Tensor, 4> backward(const Saved& saved, const std::vector<Tensor>& dy,
                                 const GradRequest& request) const {
    const Tensor k = saved.pair.k.get(name);
    Call call(name, CouplingMap::affine, options, k.size(2), saved.pair.q.get(name), k,
              saved.w1.get(name), saved.w2.get(name), Tensor(), saved.rotation.get(name));
    const auto [dq, dk, dw1, dw2, none] = call.backward(dy[0], dy[1], request, {0, 1, 2, 3, -1});
    return {dq, dk, dw1, dw2};
  }
};

// The kernels take one dt for each net. A net that heads share, each with its own dt, comes to them
// once for every head; its gradient is the sum over them.
Tensor net_of_each(const Tensor& weight, const Tensor& dt) {
  const auto count = static_cast<std::size_t>(dt.size(0));
  return weight.size(0) == dt.size(0) ? weight : cat(std::vector<Tensor>(count, weight), 0);
}

template <CouplingMap kMap>
std::array<Tensor, 2> couple(const Tensor& q, const Tensor& k, const Tensor& w1, const Tensor& w2,
                             const Tensor& dt, const CouplingOptions& options) {
  check_stepped_coupling(name_of(kMap), {q, k, w1, w2, dt}, options,
                         {false, kMap != CouplingMap::euler});
  check_kernel_sizes(name_of(kMap), q, k, w1);
  return apply(CouplingPair<kMap>{at_tokens_of(q, options)}, q, k, net_of_each(w1, dt),
               net_of_each(w2, dt), dt);
}

Tensor moved_alone(const Tensor& x, std::int64_t key_heads, const Tensor& w1, const Tensor& w2,
                   const Tensor& dt, const CouplingOptions& options) {
  return apply(CouplingUncoupled{at_tokens_of(x, options), key_heads}, x, net_of_each(w1, dt),
               net_of_each(w2, dt), dt);
}

}  // namespace

std::array<Tensor, 2> coupling_euler(const Tensor& q, const Tensor& k, const Tensor& w1,
                                     const Tensor& w2, const Tensor& dt,
                                     const CouplingOptions& options) {
  return couple<CouplingMap::euler>(q, k, w1, w2, dt, options);
}

std::array<Tensor, 2> coupling_leapfrog(const Tensor& q, const Tensor& k, const Tensor& w1,
                                        const Tensor& w2, const Tensor& dt,
                                        const CouplingOptions& options) {
  return couple<CouplingMap::leapfrog>(q, k, w1, w2, dt, options);
}

std::array<Tensor, 2> coupling_symplectic_euler(const Tensor& q, const Tensor& k, const Tensor& w1,
                                                const Tensor& w2, const Tensor& dt,
                                                const CouplingOptions& options) {
  return couple<CouplingMap::symplectic_euler>(q, k, w1, w2, dt, options);
}

std::array<Tensor, 2> coupling_uncoupled(const Tensor& q, const Tensor& k, const Tensor& w1,
                                         const Tensor& w2, const Tensor& dt,
                                         const CouplingOptions& options) {
  check_stepped_coupling("coupling_uncoupled", {q, k, w1, w2, dt}, options, {false, false});
  check_kernel_sizes("coupling_uncoupled", q, k, w1);
  return {moved_alone(q, k.size(2), w1, w2, dt, options), passed_on(k, options)};
}

std::array<Tensor, 2> coupling_uncoupled_k(const Tensor& q, const Tensor& k, const Tensor& w1,
                                           const Tensor& w2, const Tensor& dt,
                                           const CouplingOptions& options) {
  check_stepped_coupling("coupling_uncoupled_k", {q, k, w1, w2, dt}, options, {false, false});
  check_kernel_sizes("coupling_uncoupled_k", q, k, w1);
  return {passed_on(q, options), moved_alone(k, k.size(2), w1, w2, dt, options)};
}

std::array<Tensor, 2> coupling_affine(const Tensor& q, const Tensor& k, const Tensor& w1,
                                      const Tensor& w2, const CouplingOptions& options) {
  const char* op = CouplingAffine::name;
  check_inputs(op, {{"q", q}, {"k", k}, {"w1", w1}, {"w2", w2}});
  check_pair(op, q, k, options, true);
  check(w1.ndim() == 4 && (w1.size(0) == 1 || w1.size(0) == k.size(2)) && w1.size(1) == 2 &&
            w1.size(3) == q.size(3),
        ErrorKind::shape, op, ": w1 is ", w1.shape(), ", expected [", k.size(2), " or 1, 2, h, ",
        q.size(3), "]");
  const Shape w2_shape{w1.size(0), 2, 2 * w1.size(3), w1.size(2)};
  check(w2.shape() == w2_shape, ErrorKind::shape, op, ": w2 is ", w2.shape(), ", expected ",
        w2_shape, ", as w1 is ", w1.shape());
  check_kernel_sizes(op, q, k, w1);
  return apply(CouplingAffine{at_tokens_of(q, options)}, q, k, w1, w2);
}

}  // namespace duet
