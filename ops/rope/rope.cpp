// Rotary position embedding: the pair (i, i + D/2) of token t turns by (position + t)
// theta^(-2i/D).
#include "ops/rope/rope.h"

#include <array>
#include <cmath>

#include "autograd/op.h"
#include "ops/computing_dtype.h"
#include "ops/ops.h"
#include "runtime/kernel_table.h"

namespace duet {
namespace {

constexpr KernelTable<RopeKernels> kernels{"rope", &rope_cpu, DUET_CUDA_TABLE(rope_cuda)};

struct Rope {
  static constexpr const char* name = "rope";
  struct Saved {
    SavedTensor table;
  };
  std::int64_t position;
  bool inverse;  // turns back

  // y1 = x1 cos - x2 sin ; y2 = x2 cos + x1 sin
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& table) const {
    saved.table.save_input(table);
    return rotated(x, table, position, inverse);
  }

  // A rotation's transpose is its inverse: dx1 = dy1 cos + dy2 sin ; dx2 = dy2 cos - dy1 sin
  std::array<Tensor, 2> backward(const Saved& saved, const Tensor& dy) const {
    return {rotated(dy, saved.table.get(name), position, !inverse), Tensor()};
  }
  std::array<Tensor, 2> differentiable_backward(const Saved& saved, const Tensor& dy) const {
    return {apply(Rope{position, !inverse}, dy, saved.table.get(name)), Tensor()};
  }
};

}  // namespace

Tensor rope_table(std::int64_t length, std::int64_t head_dim, double theta, DType dtype,
                  Device device) {
  check(length >= 0 && head_dim >= 0 && head_dim % 2 == 0, ErrorKind::shape,
        "rope_table: size does not fit: got length ", length, ", head width ", head_dim,
        ", expected length >= 0 and an even head width");
  check(theta > 0 && std::isfinite(theta), ErrorKind::usage, "rope_table: theta: got ", theta,
        ", expected a positive number (10000 is usual)");
  check_no_f64_on_cuda("rope_table", dtype, device);
  check(computes(dtype, device), ErrorKind::dtype, "rope_table: dtype is not supported: got ",
        dtype, ", expected f32 or f64");
  Tensor table = Tensor::empty({length, 2, head_dim / 2}, dtype, device);
  kernels.launch(device, &RopeKernels::table, theta, table.mutable_view());
  return table;
}

void check_rotation(const char* op, const Tensor& x, const Tensor& table, std::int64_t position) {
  check(x.ndim() == 4, ErrorKind::shape, op, ": x: got ", x.shape(), ", expected [B, T, H, D]");
  const std::int64_t time = x.size(1), width = x.size(3);
  check(width % 2 == 0, ErrorKind::shape, op, ": head width is odd: got ", width, " (x is ",
        x.shape(), "), expected an even width; dimensions are rotated in pairs");
  check(table.ndim() == 3 && table.size(1) == 2 && table.size(2) == width / 2, ErrorKind::shape, op,
        ": table does not fit: got ", table.shape(), ", expected [length, 2, ", width / 2,
        "] for x of ", x.shape(), "; make the table for this head width");
  std::int64_t end = 0;
  const bool fits = !__builtin_add_overflow(position, time, &end) && end <= table.size(0);
  check(position >= 0 && fits, ErrorKind::index, op,
        ": positions run past the table: got positions [", position, ", ", end,
        "), expected them in [0, ", table.size(0),
        "); make a longer rope_table or a shorter sequence");
  check_no_f64_on_cuda(op, x.dtype(), x.device());
  check(computes(x.dtype(), x.device()), ErrorKind::dtype, op, ": dtype is not supported: got ",
        x.dtype(), ", expected f32 or f64");
  check(table.dtype() == x.dtype(), ErrorKind::dtype, op, ": dtypes differ: table is ",
        table.dtype(), ", x is ", x.dtype(), "; make the table in the type of x");
  check(table.device() == x.device(), ErrorKind::device, op, ": devices differ: table is on ",
        table.device(), ", x on ", x.device());
  check(!requires_grad(table), ErrorKind::autograd, op,
        ": the table takes no gradient, but requires one; detach() it first");
}

Tensor rotated(const Tensor& x, const Tensor& table, std::int64_t position, bool inverse) {
  Tensor y = Tensor::empty_like(x);
  kernels.launch(x.device(), &RopeKernels::rotate, x.view(), table.view(), position, inverse,
                 y.mutable_view());
  return y;
}

void rotate_in_place(Tensor& x, const Tensor& table, std::int64_t position) {
  kernels.launch(x.device(), &RopeKernels::rotate, x.view(), table.view(), position,
                 /*inverse=*/false, x.mutable_view());
}

Tensor rope(const Tensor& x, const Tensor& table, std::int64_t position) {
  check_rotation("rope", x, table, position);
  return apply(Rope{position, /*inverse=*/false}, x, table);
}

}  // namespace duet
