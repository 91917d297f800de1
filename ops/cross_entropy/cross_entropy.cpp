// cross_entropy: the mean negative log likelihood of the targets under softmax(logits).
#include "ops/cross_entropy/cross_entropy.h"

#include "autograd/op.h"
#include "ops/computing_dtype.h"
#include "ops/embedding/embedding.h"
#include "ops/matmul/operand.h"
#include "runtime/memory_ops.h"

namespace duet {
namespace {

constexpr const char* kName = "cross_entropy";
constexpr KernelTable<CrossEntropyKernels> kernels{kName, &cross_entropy_cpu,
                                                   DUET_CUDA_TABLE(cross_entropy_cuda)};

// Logits as [N, V] with last stride 1.
Tensor logit_rows(const Tensor& logits) {
  const Tensor rows = as_rows(logits);
  return rows.stride(1) == 1 || rows.size(1) <= 1 ? rows : clone(rows);
}

struct CrossEntropy {
  static constexpr const char* name = kName;
  struct Saved {
    SavedTensor logits, targets, stats;
  };
  CrossEntropyOptions options;

  // [*, V], [*] -> []
  Tensor forward(Saved& saved, const Tensor& logits, const Tensor& targets) const {
    const Device device = logits.device();
    const Tensor rows = logit_rows(logits);
    Tensor stats = Tensor::empty({rows.size(0), 2}, DType::f64, device);
    Tensor losses = Tensor::empty({rows.size(0)}, DType::f64, device);
    Tensor factor = Tensor::empty({}, DType::f64, device);
    Tensor loss = Tensor::empty({}, logits.dtype(), device);
    kernels.launch(device, &CrossEntropyKernels::forward, rows.view(), flat_targets(targets).view(),
                   options, stats.mutable_view(), losses.mutable_view(), factor.mutable_view(),
                   loss.mutable_view());
    saved.logits.save_input(logits);
    saved.targets.save_input(targets);
    saved.stats.save_output(stats);
    return loss;
  }

  // dlogits = (softmax(logits) - onehot(targets)) * dy / normalizer
  std::array<Tensor, 2> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor& logits = saved.logits.get(name);
    Tensor dlogits = Tensor::empty(logits.shape(), logits.dtype(), logits.device());
    Tensor factor = Tensor::empty({}, DType::f64, logits.device());
    const Tensor rows = logit_rows(logits);
    kernels.launch(logits.device(), &CrossEntropyKernels::backward, rows.view(),
                   flat_targets(saved.targets.get(name)).view(), options,
                   saved.stats.get(name).view(), dy.view(), factor.mutable_view(),
                   dlogits.reshape_view(rows.shape()).mutable_view());
    return {dlogits, Tensor()};
  }
  std::array<Tensor, 2> differentiable_backward(const Saved& saved, const Tensor& dy) const {
    const Tensor logits = saved.logits.with_edge(name);
    const Tensor targets = flat_targets(saved.targets.get(name));
    const Shape rows{targets.numel(), logits.size(-1)};
    Tensor weights = Tensor::empty({rows[0], 1}, logits.dtype(), logits.device());
    Tensor one_hot = Tensor::empty(rows, logits.dtype(), logits.device());
    Tensor factor = Tensor::empty({}, DType::f64, logits.device());
    kernels.launch(logits.device(), &CrossEntropyKernels::targets, targets.view(), options,
                   factor.mutable_view(), weights.mutable_view(), one_hot.mutable_view());
    const Tensor probs = softmax(reshape(logits, rows));
    const Tensor dlogits = mul(sub(mul(probs, weights), one_hot), dy);
    return {reshape(dlogits, logits.shape()), Tensor()};
  }
};

}  // namespace

void check_targets(const char* op, const Tensor& input, const Tensor& targets, std::int64_t vocab,
                   const CrossEntropyOptions& options) {
  Shape rows;
  for (int d = 0; d + 1 < input.ndim(); ++d) rows.push_back(input.shape()[d]);
  check(targets.shape() == rows, ErrorKind::shape, op, ": targets are ", targets.shape(),
        ", expected ", rows, " for an input of ", input.shape());
  check_id_dtype(targets.dtype(), concat(op, ": targets").c_str());
  check(targets.device() == input.device(), ErrorKind::device, op, ": devices differ: input is on ",
        input.device(), ", targets are on ", targets.device());
  check(options.normalizer >= 0 && std::isfinite(options.normalizer), ErrorKind::usage, op,
        ": normalizer is ", options.normalizer, ", expected a finite number of 0 or more");
  embedding_kernels.launch(targets.device(), &EmbeddingKernels::check_ids, targets.view(), vocab,
                           concat(op, ": targets").c_str(), &options.ignore_index);
}

Tensor flat_targets(const Tensor& targets) {
  return contiguous_copy(targets).reshape_view({targets.numel()});
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options) {
  check(logits.defined() && targets.defined(), ErrorKind::shape, kName, ": an input is undefined");
  check(logits.ndim() >= 1, ErrorKind::shape, kName, ": logits are [], expected [*, vocabulary]");
  check_no_f64_on_cuda(kName, logits.dtype(), logits.device());
  check(computes(logits.dtype(), logits.device()), ErrorKind::dtype, kName,
        ": dtype is not supported: got ", logits.dtype(), ", expected f32 or f64");
  check_targets(kName, logits, targets, logits.size(-1), options);
  return apply(CrossEntropy{options}, logits, targets);
}

}  // namespace duet
