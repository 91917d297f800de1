#include "train/optimizer.h"

#include <cmath>
#include <limits>
#include <span>

#include "runtime/kernel_table.h"
#include "runtime/memory_ops.h"
#include "runtime/nan_sign.h"
#include "train/optimizer_kernels.h"

namespace duet {
namespace {

constexpr KernelTable<OptimizerKernels> kernels{"optimizer", &optimizer_cpu,
                                                DUET_CUDA_TABLE(optimizer_cuda)};

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

Tensor scratch(std::int64_t bytes, Device device) {
  return Tensor::empty({bytes}, DType::u8, device);
}

// Norm and bad tensors of `tensors`, of which some may be undefined, into the step's numbers.
void launch_norm(const std::vector<Tensor>& tensors, double limit, double clipped, double max_norm,
                 Tensor& step) {
  std::vector<ValuePiece> pieces;
  std::vector<std::int64_t> first{0};
  std::vector<Tensor> alive;  // until the launch returns
  for (const Tensor& tensor : tensors) {
    if (tensor.defined()) {
      alive.push_back(contiguous_copy(tensor));
      const ConstView x = alive.back().view();
      for_each_piece(x.numel(), [&](std::int64_t at, std::int64_t n) {
        pieces.push_back({advance(x.data, at, x.dtype), n});
      });
    }
    first.push_back(std::ssize(pieces));
  }
  const Device device = step.device();
  Tensor sums = Tensor::empty({std::ssize(pieces)}, DType::f64, device);
  Tensor table = scratch(norm_table_bytes(pieces.size(), tensors.size()), device);
  NormCall call{};
  call.dtype = alive.empty() ? DType::f32 : alive[0].dtype();
  call.pieces = pieces;
  call.first = first;
  call.limit = limit;
  call.clipped = clipped;
  call.max_norm = max_norm;
  call.step = step.mutable_view();
  call.sums = sums.mutable_view();
  call.table = table.mutable_view();
  kernels.launch(device, &OptimizerKernels::norm, call);
}

Tensor new_numbers(Device device, double grad_scale) {
  Tensor step = Tensor::empty({kStepScalars}, DType::f64, device);
  kernels.launch(device, &OptimizerKernels::begin, grad_scale, step.mutable_view());
  return step;
}

Device device_of(const std::vector<NamedTensor>& tensors) {
  return tensors.empty() ? kCpu : tensors[0].value.device();
}

// The step's numbers on the host; null on meta, which has none.
Tensor on_host(const Tensor& step) {
  return step.device().type == DeviceType::meta ? Tensor() : to_device(step, kCpu);
}

std::string name_of(const std::vector<NamedTensor>& tensors, double index) {
  return index < 0 ? std::string() : tensors[static_cast<std::size_t>(index)].name;
}

}  // namespace

AdamW::AdamW(std::vector<NamedTensor> tensors, const AdamWOptions& options)
    : tensors_(std::move(tensors)), options_(options) {
  // In the type of the update: float32 makes 1 of 0.9999999999, and 0 of 1e-50.
  const bool in_f64 = !tensors_.empty() && tensors_[0].value.dtype() == DType::f64;
  const auto used = [in_f64](double x) {
    return in_f64 ? x : static_cast<double>(static_cast<float>(x));
  };
  const auto beta_ok = [&](double beta) { return beta >= 0 && used(beta) < 1; };
  check(beta_ok(options.beta1) && beta_ok(options.beta2), ErrorKind::usage,
        "adamw: beta1 and beta2 are out of range: got ", options.beta1, " and ", options.beta2,
        ", expected values in [0, 1)", in_f64 ? "" : " of float32");
  check(used(options.eps) > 0 && std::isfinite(options.eps), ErrorKind::usage,
        "adamw: adam_eps is out of range: got ", options.eps, ", expected a number above 0",
        in_f64 ? "" : " in float32");
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
  step(lr, StepNumbers(device_of(tensors_), grad_scale));
}

void AdamW::step(double lr, const StepNumbers& numbers) {
  ++steps_;
  const auto t = static_cast<double>(steps_);
  const AdamWScalars scalars{.beta1 = options_.beta1,
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
  const Device device = device_of(tensors_);
  Tensor table = scratch(adamw_table_bytes(pieces.size()), device);
  const AdamWCall call{tensors_[0].value.dtype(), pieces, scalars, numbers.view(),
                       table.mutable_view()};
  kernels.launch(device, &OptimizerKernels::adamw, call);
}

void AdamW::zero_grad() {
  for (const NamedTensor& t : tensors_) set_grad(*t.owner, {});
}

StepNumbers::StepNumbers(Device device, double grad_scale)
    : scalars_(new_numbers(device, grad_scale)) {}

void StepNumbers::add_loss(const Tensor& loss) {
  kernels.launch(loss.device(), &OptimizerKernels::add_loss, loss.view(), scalars_.mutable_view());
}

void StepNumbers::measure(const std::vector<NamedTensor>& tensors, double max_norm) {
  std::vector<Tensor> gradients;
  for (const NamedTensor& t : tensors) gradients.push_back(t.gradient());
  // What one element's square can reach once clipped must fit the second moment.
  const bool narrow = !tensors.empty() && tensors[0].value.dtype() == DType::f32;
  const double limit = narrow ? static_cast<double>(std::numeric_limits<float>::max())
                              : std::numeric_limits<double>::max();
  launch_norm(gradients, limit, max_norm > 0 ? max_norm * max_norm : limit, max_norm, scalars_);
}

StepOutcome StepNumbers::read(const std::vector<NamedTensor>& tensors) const {
  const Tensor host = on_host(scalars_);
  if (!host.defined()) return {};
  const double* step = host.data<double>();
  return {without_nan_sign(step[kStepLoss]), without_nan_sign(step[kStepNorm]),
          name_of(tensors, step[kStepFirstBad]), step[kStepSkip] != 0};
}

GradientNorm gradient_norm(const std::vector<NamedTensor>& tensors, double max_norm) {
  StepNumbers numbers(device_of(tensors));
  numbers.measure(tensors, max_norm);
  StepOutcome outcome = numbers.read(tensors);
  return {outcome.grad_norm, std::move(outcome.first_bad)};
}

std::string first_non_finite(const std::vector<NamedTensor>& tensors) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<Tensor> values;
  for (const NamedTensor& t : tensors) values.push_back(t.value);
  Tensor step = new_numbers(device_of(tensors), 1);
  launch_norm(values, kInfinity, kInfinity, 0, step);
  const Tensor host = on_host(step);
  return host.defined() ? name_of(tensors, host.data<double>()[kStepFirstBad]) : std::string();
}

double clip_scale(double norm, double max_norm) { return clip_factor(norm, max_norm); }

}  // namespace duet
