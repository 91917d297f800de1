#include "train/optimizer.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "runtime/kernel_table.h"
#include "runtime/memory_ops.h"
#include "train/optimizer_cpu.h"

namespace duet {
namespace {

constexpr KernelTable<OptimizerKernels> kernels{"optimizer", &optimizer_cpu};

// Elements per piece of work: fixed, so that sums keep their bits whatever the thread count.
constexpr std::int64_t kPiece = std::int64_t{32} * 1024;

// Calls f(begin, count) over [0, n) in pieces.
template <class F>
void for_each_piece(std::int64_t n, F&& f) {
  for (std::int64_t i = 0; i < n; i += kPiece) f(i, std::min(kPiece, n - i));
}

template <class Byte>
auto* advance(Byte* data, std::int64_t elements, DType dtype) {
  using Raw = std::conditional_t<std::is_const_v<Byte>, const std::byte, std::byte>;
  return data == nullptr ? data
                         : static_cast<Byte*>(static_cast<Raw*>(data) +
                                              elements * static_cast<std::int64_t>(size_of(dtype)));
}

// Of each tensor, in f64; 0 for an undefined one. The pieces are fixed, so are the bits.
std::vector<double> square_sums(const std::vector<Tensor>& tensors) {
  std::vector<ValuePiece> pieces;
  std::vector<std::size_t> tensor_of;  // of each piece
  std::vector<Tensor> alive;           // until the launch returns
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    alive.push_back(contiguous_copy(tensors[i]));
    const ConstView x = alive.back().view();
    for_each_piece(x.numel(), [&](std::int64_t at, std::int64_t n) {
      pieces.push_back({advance(x.data, at, x.dtype), n});
      tensor_of.push_back(i);
    });
  }
  std::vector<double> of_piece(pieces.size());
  std::vector<double> sums(tensors.size());
  if (pieces.empty()) return sums;
  kernels.launch(alive[0].device(), &OptimizerKernels::square_sums, alive[0].dtype(),
                 std::span<const ValuePiece>(pieces), of_piece.data());
  for (std::size_t p = 0; p < pieces.size(); ++p) sums[tensor_of[p]] += of_piece[p];
  return sums;
}

}  // namespace

AdamW::AdamW(std::vector<NamedTensor> tensors, const AdamWOptions& options)
    : tensors_(std::move(tensors)), options_(options) {
  const auto beta_ok = [](double beta) { return beta >= 0 && beta < 1; };
  check(beta_ok(options.beta1) && beta_ok(options.beta2), ErrorKind::usage,
        "adamw: beta1 and beta2 are out of range: got ", options.beta1, " and ", options.beta2,
        ", expected values in [0, 1)");
  check(options.eps > 0 && std::isfinite(options.eps), ErrorKind::usage,
        "adamw: adam_eps is out of range: got ", options.eps, ", expected a number above 0");
  check(options.weight_decay >= 0 && std::isfinite(options.weight_decay), ErrorKind::usage,
        "adamw: weight_decay is out of range: got ", options.weight_decay,
        ", expected 0 or a positive number");
  const MemoryKindScope kind(MemoryKind::optimizer);
  for (const NamedTensor& t : tensors_) {
    const Tensor& w = t.value;
    check(w.is_contiguous(), ErrorKind::internal, "adamw: ", t.name, " has gaps: strides ",
          w.strides());
    const MemoryScope owner(w.storage()->owner());  // of the weight: a layer's moments are its own
    const DType wide = w.dtype() == DType::f64 ? DType::f64 : DType::f32;
    moments_.push_back({Tensor::zeros(w.shape(), wide, w.device()),
                        Tensor::zeros(w.shape(), wide, w.device()),
                        w.dtype() == wide ? Tensor() : Tensor::empty(w.shape(), wide, w.device())});
  }
}

void AdamW::step(double lr, double grad_scale) {
  ++steps_;
  const auto t = static_cast<double>(steps_);
  const AdamWScalars scalars{.grad_scale = grad_scale,
                             .beta1 = options_.beta1,
                             .beta2 = options_.beta2,
                             .eps = options_.eps,
                             .keep = 1 - lr * options_.weight_decay,
                             .step_size = lr / (1 - std::pow(options_.beta1, t)),
                             .v_scale = 1 / std::sqrt(1 - std::pow(options_.beta2, t))};
  std::vector<AdamWPiece> pieces;
  std::vector<Tensor> gradients;  // alive until the launch returns
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor gradient = tensors_[i].gradient();
    if (!gradient.defined()) continue;
    Tensor& weight = tensors_[i].value;
    check(gradient.shape() == weight.shape() && gradient.dtype() == weight.dtype(),
          ErrorKind::internal, "adamw: the gradient of ", tensors_[i].name, " does not fit: got ",
          gradient.dtype(), " ", gradient.shape(), ", expected ", weight.dtype(), " ",
          weight.shape());
    gradients.push_back(contiguous_copy(gradient));
    const View w = weight.mutable_view();
    const View m = moments_[i].m.mutable_view();
    const View v = moments_[i].v.mutable_view();
    const ConstView g = gradients.back().view();
    for_each_piece(weight.numel(), [&](std::int64_t at, std::int64_t n) {
      pieces.push_back({advance(w.data, at, w.dtype), advance(g.data, at, w.dtype),
                        advance(m.data, at, m.dtype), advance(v.data, at, v.dtype), n,
                        tensors_[i].owner->decay});
    });
  }
  if (pieces.empty()) return;
  kernels.launch(tensors_[0].value.device(), &OptimizerKernels::adamw, tensors_[0].value.dtype(),
                 std::span<const AdamWPiece>(pieces), scalars);
}

void AdamW::zero_grad() {
  for (const NamedTensor& t : tensors_) set_grad(*t.owner, {});
}

GradientNorm gradient_norm(const std::vector<NamedTensor>& tensors, double max_norm) {
  std::vector<Tensor> gradients;
  for (const NamedTensor& t : tensors) gradients.push_back(t.gradient());
  const std::vector<double> sums = square_sums(gradients);
  GradientNorm norm;
  norm.value = std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0));
  // What one element's square can reach once clipped must fit the second moment.
  const bool narrow = !tensors.empty() && tensors[0].value.dtype() == DType::f32;
  const double limit = narrow ? static_cast<double>(std::numeric_limits<float>::max())
                              : std::numeric_limits<double>::max();
  const double clipped = max_norm > 0 ? max_norm * max_norm : limit;
  for (std::size_t i = 0; i < sums.size() && norm.finite(); ++i) {
    if (!std::isfinite(sums[i]) || std::min(sums[i], clipped) >= limit) {
      norm.first_bad = tensors[i].name;
    }
  }
  return norm;
}

std::string first_non_finite(const std::vector<NamedTensor>& tensors) {
  std::vector<Tensor> values;
  for (const NamedTensor& t : tensors) values.push_back(t.value);
  const std::vector<double> sums = square_sums(values);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (!std::isfinite(sums[i])) return tensors[i].name;
  }
  return {};
}

double clip_scale(double norm, double max_norm) {
  return max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0;
}

}  // namespace duet
