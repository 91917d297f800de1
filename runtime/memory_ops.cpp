#include "runtime/memory_ops.h"

#include "runtime/device_source.h"
#include "runtime/kernel_table.h"
#include "runtime/memory_ops_kernels.h"
#include "runtime/overlap.h"

namespace duet {
namespace {

constexpr KernelTable<MemoryOpsKernels> kernels{"memory_ops", &memory_ops_cpu,
                                                DUET_CUDA_TABLE(memory_ops_cuda)};

void check_same_shape(const char* op, const Tensor& out, const Tensor& x) {
  check(out.shape() == x.shape(), ErrorKind::shape, op, ": shapes differ: got ", x.shape(),
        ", expected ", out.shape());
}

// Both contiguous, of one dtype; one is on a GPU, or `out` on meta.
void copy_between_devices(Tensor& out, const Tensor& x) {
  check(x.device().type != DeviceType::meta, ErrorKind::device,
        "copy: devices differ: got a tensor on meta, which has no values, expected one on ",
        out.device(), " or cpu");
  const View view = out.mutable_view();
  if (out.device().type == DeviceType::meta) return;
  copy_bytes(view.data, out.device(), x.view().data, x.device(), out.nbytes());
}

}  // namespace

void fill(Tensor& out, double value) {
  kernels.launch(out.device(), &MemoryOpsKernels::fill, out.mutable_view(), value);
}

void copy(Tensor& out, const Tensor& x) {
  check_same_shape("copy", out, x);
  check_apart("copy", out, x);
  if (is_same_window(out, x)) return;
  if (out.device() != x.device()) {
    if (out.dtype() == x.dtype() && out.is_contiguous() && x.is_contiguous()) {
      return copy_between_devices(out, x);
    }
    return copy(out, to_device(x, out.device()));
  }
  kernels.launch(out.device(), &MemoryOpsKernels::copy, x.view(), out.mutable_view());
}

void accumulate(Tensor& out, const Tensor& x) {
  check_same_shape("accumulate", out, x);
  check(out.device() == x.device(), ErrorKind::device, "accumulate: devices differ: got ",
        x.device(), ", expected ", out.device());
  check(out.dtype() == x.dtype(), ErrorKind::dtype, "accumulate: dtypes differ: got ", x.dtype(),
        ", expected ", out.dtype());
  check_apart("accumulate", out, x);
  kernels.launch(out.device(), &MemoryOpsKernels::accumulate, x.view(), out.mutable_view());
}

Tensor clone(const Tensor& x) {
  Tensor out = Tensor::empty_like(x);
  copy(out, x);
  return out;
}

Tensor contiguous_copy(const Tensor& x) { return x.is_contiguous() ? x : clone(x); }

Tensor to_device(const Tensor& x, Device device) {
  Tensor whole = contiguous_copy(x).detach();
  if (x.device() == device) return whole;
  Tensor out = Tensor::empty(x.shape(), x.dtype(), device);
  copy_between_devices(out, whole);
  return out;
}

void synchronize(Device device) {
  if (device.type == DeviceType::cuda) synchronize_cuda();
}

}  // namespace duet
