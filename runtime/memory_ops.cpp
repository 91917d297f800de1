#include "runtime/memory_ops.h"

#include "runtime/cpu/memory_ops_cpu.h"
#include "runtime/kernel_table.h"

namespace duet {
namespace {

constexpr KernelTable<MemoryOpsKernels> kernels{"memory_ops", &memory_ops_cpu};

void check_same_shape(const char* op, const Tensor& out, const Tensor& x) {
  check(out.shape() == x.shape(), ErrorKind::shape, op, ": shapes differ: got ", x.shape(),
        ", expected ", out.shape());
  check(out.device() == x.device(), ErrorKind::device, op, ": devices differ: got ", x.device(),
        ", expected ", out.device());
}

}  // namespace

void fill(Tensor& out, double value) {
  kernels.launch(out.device(), &MemoryOpsKernels::fill, out.mutable_view(), value);
}

void copy(Tensor& out, const Tensor& x) {
  check_same_shape("copy", out, x);
  check(out.storage() != x.storage() || x.numel() == 0, ErrorKind::shape,
        "copy: source and destination share storage; clone the source first");
  kernels.launch(out.device(), &MemoryOpsKernels::copy, x.view(), out.mutable_view());
}

void accumulate(Tensor& out, const Tensor& x) {
  check_same_shape("accumulate", out, x);
  check(out.dtype() == x.dtype(), ErrorKind::dtype, "accumulate: dtypes differ: got ", x.dtype(),
        ", expected ", out.dtype());
  kernels.launch(out.device(), &MemoryOpsKernels::accumulate, x.view(), out.mutable_view());
}

Tensor clone(const Tensor& x) {
  Tensor out = Tensor::empty_like(x);
  copy(out, x);
  return out;
}

Tensor contiguous_copy(const Tensor& x) { return x.is_contiguous() ? x : clone(x); }

}  // namespace duet
