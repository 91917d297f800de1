// matmul: batched matrix products whose leading dimensions broadcast.
#include "autograd/op.h"
#include "ops/computing_dtype.h"
#include "ops/matmul/gemm_scratch.h"
#include "ops/matmul/matmul_kernels.h"
#include "ops/matmul/operand.h"
#include "ops/ops.h"
#include "ops/reduce/reduce.h"
#include "runtime/memory_ops.h"

namespace duet {
namespace {

constexpr const char* kName = "matmul";

Shape leading(const Shape& shape) {
  Shape lead;
  for (int d = 0; d + 2 < shape.ndim(); ++d) lead.push_back(shape[d]);
  return lead;
}

Shape with_matrix(Shape lead, std::int64_t rows, std::int64_t columns) {
  lead.push_back(rows);
  lead.push_back(columns);
  return lead;
}

// x with its leading dimensions expanded to `lead`, at no copy.
Tensor expand_leading(const Tensor& x, const Shape& lead) {
  return x.expand_view(with_matrix(lead, x.size(-2), x.size(-1)));
}

// out = or += a @ b, where a and b are already expanded to the leading dimensions of `out`.
void product(const Tensor& a, const Tensor& b, Tensor& out, bool accumulate) {
  Tensor left = as_gemm_operand(a);
  const Tensor right = as_gemm_operand(b);
  for (int d = 0; d + 2 < out.ndim(); ++d) {
    // Both the same in this dimension: oneDNN wants one of them to have it.
    if (out.shape()[d] > 1 && left.strides()[d] == 0 && right.strides()[d] == 0) left = clone(left);
  }
  const View c = out.mutable_view();
  Tensor scratch = gemm_scratch(left.view(), right.view(), c, accumulate, out.device());
  matmul_kernels.launch(out.device(), &MatmulKernels::gemm, left.view(), right.view(), c,
                        accumulate, scratch_view(scratch));
}

Shape padded(const Shape& shape, int ndim) {
  Shape out = Dims::filled(ndim - shape.ndim(), 1);
  for (const std::int64_t d : shape) out.push_back(d);
  return out;
}

// target = or += a @ b, summed over the leading dimensions along which the target was broadcast.
void reduced_product(const Tensor& a, const Tensor& b, const GradTarget& target) {
  const Shape sizes = padded(target.out.shape(), a.ndim());
  Strides strides = Dims::filled(a.ndim() - target.out.ndim(), 0);
  for (const std::int64_t s : target.out.strides()) strides.push_back(s);
  Tensor out = target.out.as_strided(sizes, strides, target.out.offset());

  std::int64_t terms = 1;
  for (int d = 0; d + 2 < a.ndim(); ++d) terms *= sizes[d] == 1 ? a.shape()[d] : 1;
  if (terms == 0 && !target.accumulate) fill(out, 0.0);
  for (std::int64_t term = 0; term < terms; ++term) {
    Tensor left = a;
    Tensor right = b;
    std::int64_t rest = term;
    for (int d = a.ndim() - 3; d >= 0; --d) {
      if (sizes[d] != 1) continue;
      const std::int64_t i = rest % a.shape()[d];
      rest /= a.shape()[d];
      left = left.slice_view(d, i, i + 1);
      right = right.slice_view(d, i, i + 1);
    }
    product(left, right, out, target.accumulate || term > 0);
  }
}

struct Matmul {
  static constexpr const char* name = kName;
  struct Saved {
    SavedTensor a, b;
  };

  // [*, M, K] @ [*, K, N] -> [*, M, N]
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    const Shape lead = broadcast_shapes(leading(a.shape()), leading(b.shape()), kName);
    saved.a.save_input(a);
    saved.b.save_input(b);
    Tensor y = Tensor::empty(with_matrix(lead, a.size(-2), b.size(-1)), a.dtype(), a.device());
    product(expand_leading(a, lead), expand_leading(b, lead), y, false);
    return y;
  }

  // da = dy @ b^T, db = a^T @ dy, each summed over the dimensions it was broadcast along
  std::array<Tensor, 2> backward(const Saved& saved, const Tensor& dy,
                                 const GradRequest& request) const {
    const Tensor& a = saved.a.get(name);
    const Tensor& b = saved.b.get(name);
    const Shape lead = leading(dy.shape());
    std::array<Tensor, 2> grads;
    if (request.needed(0)) {
      const GradTarget da(request.accumulator(0), a.shape(), a);
      reduced_product(dy, expand_leading(b, lead).transpose_view(-1, -2), da);
      grads[0] = da.out;
    }
    if (request.needed(1)) {
      const GradTarget db(request.accumulator(1), b.shape(), b);
      if (leading(b.shape()).numel() == 1 && leading(a.shape()) == lead) {
        // One b for all of a: the leading dimensions join the rows that are summed over.
        Tensor out = db.out.as_strided({b.size(-2), b.size(-1)},
                                       {db.out.stride(-2), db.out.stride(-1)}, db.out.offset());
        product(as_rows(a).transpose_view(0, 1), as_rows(dy), out, db.accumulate);
      } else {
        reduced_product(expand_leading(a, lead).transpose_view(-1, -2), dy, db);
      }
      grads[1] = db.out;
    }
    return grads;
  }
  std::array<Tensor, 2> differentiable_backward(const Saved& saved, const Tensor& dy,
                                                const GradRequest& request) const {
    const Tensor a = saved.a.with_edge(name);
    const Tensor b = saved.b.with_edge(name);
    std::array<Tensor, 2> grads;
    if (request.needed(0)) {
      grads[0] = differentiable_sum_to(matmul(dy, transpose(b, -1, -2)), a.shape());
    }
    if (request.needed(1)) {
      grads[1] = differentiable_sum_to(matmul(transpose(a, -1, -2), dy), b.shape());
    }
    return grads;
  }
};

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check(a.defined() && b.defined(), ErrorKind::shape, kName, ": an input is undefined");
  check(a.ndim() >= 2 && b.ndim() >= 2, ErrorKind::shape, kName,
        ": expected two or more dimensions: a is ", a.shape(), ", b is ", b.shape(),
        "; reshape a vector to [1, K] or [K, 1]");
  check(a.size(-1) == b.size(-2), ErrorKind::shape, kName, ": inner dimensions differ: a is ",
        a.shape(), ", b is ", b.shape(), " (a.size(-1)=", a.size(-1), ", b.size(-2)=", b.size(-2),
        ")");
  check(a.dtype() == b.dtype(), ErrorKind::dtype, kName, ": dtypes differ: a is ", a.dtype(),
        ", b is ", b.dtype(), "; convert one of them");
  check_no_f64_on_cuda(kName, a.dtype(), a.device());
  check(computes(a.dtype(), a.device()), ErrorKind::dtype, kName, ": dtype is not supported: got ",
        a.dtype(), ", expected f32 or f64");
  check(a.device() == b.device(), ErrorKind::device, kName, ": devices differ: a is on ",
        a.device(), ", b is on ", b.device());
  broadcast_shapes(leading(a.shape()), leading(b.shape()), kName);
  return apply(Matmul{}, a, b);
}

}  // namespace duet
