// linear_cross_entropy: the head and its loss in chunks of rows. The gradients, whose scale is
// known up to the factor that backward brings, are computed in the forward while a chunk of logits
// exists; a second product for the same logits, or [N, V] logits kept, would cost more than holding
// them.
#include "ops/linear_cross_entropy/linear_cross_entropy.h"

#include <algorithm>

#include "autograd/op.h"
#include "ops/computing_dtype.h"
#include "ops/matmul/gemm_scratch.h"
#include "ops/matmul/operand.h"
#include "runtime/memory_ops.h"

namespace duet {
namespace {

constexpr const char* kName = "linear_cross_entropy";
constexpr KernelTable<LinearCrossEntropyKernels> kernels{
    kName, &linear_cross_entropy_cpu, DUET_CUDA_TABLE(linear_cross_entropy_cuda)};

// Rows of logits at a time: up to 256, less where they would take more than 64 MB or more than a
// sixteenth of all logits, but no fewer than 32, below which the products get slow. Four times that
// on a GPU, whose many cores a small product does not fill.
std::int64_t chunk_rows(std::int64_t rows, std::int64_t vocab, DType dtype, Device device) {
  const std::int64_t scale = device.kernels() == DeviceType::cuda ? 4 : 1;
  const std::int64_t bytes = scale * (64 << 20);
  const std::int64_t row_bytes =
      std::max<std::int64_t>(1, vocab) * static_cast<std::int64_t>(size_of(dtype));
  std::int64_t chunk = std::min({scale * 256, bytes / row_bytes, (rows + 15) / 16});
  chunk = std::max<std::int64_t>(chunk, scale * 32);
  return std::min(chunk, rows);
}

struct LinearCrossEntropy {
  static constexpr const char* name = kName;
  struct Saved {
    SavedTensor dx, dweight;
  };
  LinearCrossEntropyOptions options;
  bool want_dx = false;
  bool want_dweight = false;

  // [*, C], [V, C], [*] -> []
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& targets) const {
    const Device device = x.device();
    const DType dtype = x.dtype();
    const std::int64_t vocab = options.valid_vocab > 0 ? options.valid_vocab : weight.size(0);
    const Tensor rows = as_gemm_operand(as_rows(x));
    const Tensor classes = as_gemm_operand(weight.slice_view(0, 0, vocab));
    const Tensor flat = flat_targets(targets);
    const std::int64_t n = rows.size(0);
    const std::int64_t chunk = chunk_rows(n, vocab, dtype, device);

    // What lives on comes first, so that the scratch leaves no hole below it.
    Tensor loss = Tensor::empty({}, dtype, device);
    Tensor dx = want_dx ? Tensor::empty(x.shape(), dtype, device) : Tensor();
    Tensor dweight = want_dweight ? Tensor::empty(weight.shape(), dtype, device) : Tensor();
    Tensor logits = Tensor::empty({chunk, vocab}, dtype, device);
    Tensor stats = Tensor::empty({chunk, 2}, DType::f64, device);
    Tensor losses = Tensor::empty({n}, DType::f64, device);
    Tensor factor = Tensor::empty({}, DType::f64, device);

    LinearCrossEntropyCall call;
    call.x = rows.view();
    call.weight = classes.view();
    call.targets = flat.view();
    call.options = options;
    call.logits = logits.mutable_view();
    call.stats = stats.mutable_view();
    call.losses = losses.mutable_view();
    call.factor = factor.mutable_view();
    call.loss = loss.mutable_view();
    if (want_dx) call.dx = dx.reshape_view(rows.shape()).mutable_view();
    if (want_dweight) {
      call.dweight = dweight.slice_view(0, 0, vocab).mutable_view();
      Tensor padding = dweight.slice_view(0, vocab, weight.size(0));
      fill(padding, 0.0);
    }
    Tensor scratch = scratch_tensor(linear_cross_entropy_scratch(call, device), device);
    call.scratch = scratch_view(scratch);
    kernels.launch(device, &LinearCrossEntropyKernels::run, call);
    saved.dx.save_output(dx);
    saved.dweight.save_output(dweight);
    return loss;
  }

  // dx = dy * (softmax(x W^T) - onehot) W / normalizer; dW = dy * (softmax - onehot)^T x /
  // normalizer
  std::array<Tensor, 3> backward(const Saved& saved, const Tensor& dy,
                                 const GradRequest& request) const {
    return {scaled(saved.dx, dy, request, 0), scaled(saved.dweight, dy, request, 1), Tensor()};
  }

  // The kept gradient times dy: in place, so that a leaf without a gradient adopts it, or added to
  // the gradient that the leaf holds.
  static Tensor scaled(const SavedTensor& kept, const Tensor& dy, const GradRequest& request,
                       std::size_t input) {
    if (!request.needed(input)) return {};
    Tensor gradient = kept.get(name);
    Tensor buffer = request.accumulator(input);
    if (buffer.defined() && buffer.is_contiguous() && buffer.dtype() == gradient.dtype()) {
      kernels.launch(dy.device(), &LinearCrossEntropyKernels::add_scaled, dy.view(),
                     gradient.view(), buffer.mutable_view());
      return buffer;
    }
    kernels.launch(dy.device(), &LinearCrossEntropyKernels::scale, dy.view(),
                   gradient.mutable_view());
    return gradient;
  }
};

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            const LinearCrossEntropyOptions& options) {
  check(x.defined() && weight.defined() && targets.defined(), ErrorKind::shape, kName,
        ": an input is undefined");
  check(weight.ndim() == 2, ErrorKind::shape, kName, ": weight is ", weight.shape(),
        ", expected [vocabulary, width]");
  check(x.ndim() >= 1 && x.size(-1) == weight.size(1), ErrorKind::shape, kName,
        ": inner dimensions differ: x is ", x.shape(), ", weight is ", weight.shape(),
        " (the last size of both must be equal)");
  check_no_f64_on_cuda(kName, x.dtype(), x.device());
  check(computes(x.dtype(), x.device()), ErrorKind::dtype, kName, ": dtype is not supported: got ",
        x.dtype(), ", expected f32 or f64");
  check(x.dtype() == weight.dtype(), ErrorKind::dtype, kName, ": dtypes differ: x is ", x.dtype(),
        ", weight is ", weight.dtype(), "; convert one of them");
  check(x.device() == weight.device(), ErrorKind::device, kName, ": devices differ: x is on ",
        x.device(), ", weight is on ", weight.device());
  check(options.valid_vocab >= 0 && options.valid_vocab <= weight.size(0), ErrorKind::shape, kName,
        ": valid_vocab is ", options.valid_vocab, ", expected 0 to ", weight.size(0),
        " for a weight of ", weight.shape());
  const std::int64_t vocab = options.valid_vocab > 0 ? options.valid_vocab : weight.size(0);
  check_targets(kName, x, targets, vocab, options);
  return apply(LinearCrossEntropy{options, grad_enabled() && requires_grad(x),
                                  grad_enabled() && requires_grad(weight)},
               x, weight, targets);
}

}  // namespace duet
