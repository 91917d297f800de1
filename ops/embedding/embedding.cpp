// embedding: rows of a table by id; the gradient adds rows back in a fixed order.
#include "ops/embedding/embedding.h"

#include "autograd/op.h"
#include "ops/computing_dtype.h"
#include "ops/matmul/operand.h"
#include "ops/ops.h"
#include "runtime/memory_ops.h"

namespace duet {
namespace {

constexpr const char* kName = "embedding";

struct Embedding {
  static constexpr const char* name = kName;
  struct Saved {
    SavedTensor ids;
  };
  std::int64_t vocab = 0;

  // [V, C], [*] -> [*, C]
  Tensor forward(Saved& saved, const Tensor& weight, const Tensor& ids) const {
    saved.ids.save_input(ids);
    const std::int64_t width = weight.size(1);
    const Tensor flat = contiguous_copy(ids).reshape_view({ids.numel()});
    Shape shape = ids.shape();
    shape.push_back(width);
    Tensor y = Tensor::empty(shape, weight.dtype(), weight.device());
    embedding_kernels.launch(y.device(), &EmbeddingKernels::forward, weight.view(), flat.view(),
                             y.reshape_view({ids.numel(), width}).mutable_view());
    return y;
  }

  // dweight[v] = sum of dy[n] over the n with ids[n] = v
  std::array<Tensor, 2> backward(const Saved& saved, const Tensor& dy,
                                 const GradRequest& request) const {
    if (!request.needed(0)) return {};
    return {scattered(dy, saved.ids.get(name), request.accumulator(0)), Tensor()};
  }
  std::array<Tensor, 2> differentiable_backward(const Saved& saved, const Tensor& dy) const;

  Tensor scattered(const Tensor& dy, const Tensor& ids, const Tensor& accumulator) const {
    const Tensor flat = contiguous_copy(ids).reshape_view({ids.numel()});
    const Tensor rows = as_rows(dy);
    const GradTarget target(accumulator, {vocab, rows.size(1)}, dy);
    Tensor scratch = Tensor::empty({embedding_scratch(ids.numel(), rows.size(1), dy.device())},
                                   DType::i64, dy.device());
    Tensor dweight = target.out;
    embedding_kernels.launch(dy.device(), &EmbeddingKernels::backward, rows.view(), flat.view(),
                             scratch.mutable_view(), dweight.mutable_view(), target.accumulate);
    return dweight;
  }
};

// The backward of embedding as an op of its own: its backward is embedding again.
struct Scatter {
  static constexpr const char* name = kName;
  struct Saved {
    SavedTensor ids;
  };
  Embedding embedding;

  // [*, C], [*] -> [V, C]
  Tensor forward(Saved& saved, const Tensor& dy, const Tensor& ids) const {
    saved.ids.save_input(ids);
    return embedding.scattered(dy, ids, {});
  }
  std::array<Tensor, 2> backward(const Saved& saved, const Tensor& g) const {
    Embedding::Saved unused;
    return {embedding.forward(unused, g, saved.ids.get(name)), Tensor()};
  }
  std::array<Tensor, 2> differentiable_backward(const Saved& saved, const Tensor& g) const {
    return {apply(embedding, g, saved.ids.get(name)), Tensor()};
  }
};

std::array<Tensor, 2> Embedding::differentiable_backward(const Saved& saved,
                                                         const Tensor& dy) const {
  return {apply(Scatter{*this}, dy, saved.ids.get(name)), Tensor()};
}

}  // namespace

void check_id_dtype(DType dtype, const char* what) {
  check(dtype == DType::i32 || dtype == DType::i64, ErrorKind::dtype, what, " are ", dtype,
        ", expected i32 or i64");
}

Tensor embedding(const Tensor& weight, const Tensor& ids) {
  check(weight.defined() && ids.defined(), ErrorKind::shape, kName, ": an input is undefined");
  check(weight.ndim() == 2, ErrorKind::shape, kName, ": weight is ", weight.shape(),
        ", expected [vocabulary, width]");
  check_no_f64_on_cuda(kName, weight.dtype(), weight.device());
  check(computes(weight.dtype(), weight.device()), ErrorKind::dtype, kName,
        ": dtype is not supported: got ", weight.dtype(), ", expected f32 or f64");
  check_id_dtype(ids.dtype(), "embedding: ids");
  check(ids.device() == weight.device(), ErrorKind::device, kName,
        ": devices differ: weight is on ", weight.device(), ", ids are on ", ids.device());
  embedding_kernels.launch(ids.device(), &EmbeddingKernels::check_ids, ids.view(), weight.size(0),
                           "embedding: ids", static_cast<const std::int64_t*>(nullptr));
  return apply(Embedding{weight.size(0)}, weight, ids);
}

}  // namespace duet
