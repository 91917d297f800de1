// diff_combine: what the two maps of differential attention give together.
#include "ops/diff_combine/diff_combine.h"

#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "ops/ops.h"
#include "ops/reduce/reduce.h"
#include "ops/weight_gradient.h"
#include "ops/whole_rows.h"
#include "runtime/kernel_table.h"
#include "runtime/memory_ops.h"

namespace duet {
namespace {

constexpr KernelTable<DiffCombineKernels> kernels{"diff_combine", &diff_combine_cpu,
                                                  DUET_CUDA_TABLE(diff_combine_cuda)};

// [B, T, H]
Shape rows_of(const Tensor& a) { return {a.size(0), a.size(1), a.size(2)}; }

struct DiffCombine {
  static constexpr const char* name = "diff_combine";
  struct Saved {
    SavedTensor a2, lambda;
  };

  // y = a1 - lambda a2
  Tensor forward(Saved& saved, const Tensor& a1, const Tensor& a2, const Tensor& lambda) const {
    saved.a2.save_input(a2);
    saved.lambda.save_input(lambda);
    Tensor y = Tensor::empty(a1.shape(), a1.dtype(), a1.device());
    kernels.launch(a1.device(), &DiffCombineKernels::forward, with_whole_rows(a1).view(),
                   with_whole_rows(a2).view(), lambda.expand_view(rows_of(a1)).view(),
                   y.mutable_view());
    return y;
  }

  // da1 = dy, da2 = -lambda dy, dlambda = -<dy, a2> of each row; summed where lambda is shared
  std::array<Tensor, 3> backward(const Saved& saved, const Tensor& dy,
                                 const GradRequest& request) const {
    const Tensor a2 = with_whole_rows(saved.a2.get(name));
    const Tensor& lambda = saved.lambda.get(name);
    Tensor da2 = empty_gradient(request, 1, a2);
    Tensor row_dots =
        request.needed(2) ? Tensor::empty(rows_of(a2), a2.dtype(), a2.device()) : Tensor();
    if (request.needed(1) || request.needed(2)) {
      kernels.launch(a2.device(), &DiffCombineKernels::backward, a2.view(),
                     lambda.expand_view(rows_of(a2)).view(), with_whole_rows(dy).view(),
                     view_or_null(da2), view_or_null(row_dots));
    }
    return {request.needed(0) ? dy : Tensor(), da2,
            request.needed(2) ? sum_to(row_dots, lambda.shape()) : Tensor()};
  }
  std::array<Tensor, 3> differentiable_backward(const Saved& saved, const Tensor& dy,
                                                const GradRequest& request) const {
    const Tensor a2 = saved.a2.with_edge(name);
    const Tensor lambda = saved.lambda.with_edge(name);
    std::array<Tensor, 3> grads;
    if (request.needed(0)) grads[0] = dy;
    if (request.needed(1)) {
      const Shape rows = rows_of(a2);
      const Tensor wide =
          lambda.ndim() == 0 ? lambda : reshape(lambda, {rows[0], rows[1], rows[2], 1});
      grads[1] = scale(mul(dy, wide), -1);
    }
    if (request.needed(2)) {
      grads[2] = scale(differentiable_sum_to(sum(mul(dy, a2), {-1}), lambda.shape()), -1);
    }
    return grads;
  }
};

}  // namespace

Tensor diff_combine(const Tensor& a1, const Tensor& a2, const Tensor& lambda) {
  check_inputs("diff_combine", {{"a1", a1}, {"a2", a2}, {"lambda", lambda}});
  check(a1.ndim() == 4, ErrorKind::shape, "diff_combine: a1 is ", a1.shape(),
        ", expected [B, T, H, D]");
  check(a2.shape() == a1.shape(), ErrorKind::shape, "diff_combine: a2 is ", a2.shape(),
        ", expected ", a1.shape(), ", as a1");
  check(lambda.ndim() == 0 || lambda.shape() == rows_of(a1), ErrorKind::shape,
        "diff_combine: lambda is ", lambda.shape(), ", expected [] or ", rows_of(a1),
        ", one per token and head");
  return apply(DiffCombine{}, a1, a2, lambda);
}

}  // namespace duet
