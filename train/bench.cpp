#include "train/bench.h"

#include <sys/resource.h>

#include <chrono>
#include <utility>

#include "models/flops.h"
#include "runtime/cpu/onednn.h"
#include "runtime/memory_ops.h"
#include "runtime/random.h"
#include "train/run_checks.h"
#include "train/text.h"

namespace duet {
namespace {

// 64 MiB of a host, 512 MiB of a GPU, in floats: beyond every cache.
std::int64_t copied_elements(Device device) {
  return std::int64_t{device.type == DeviceType::cuda ? 128 : 16} << 20;
}

std::int64_t minor_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

template <class F>
double seconds_of(F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Every window gives block_size pairs (token, next token).
Batch random_batch(const RunConfig& config, Device device, std::int64_t step, std::int64_t micro) {
  if (device.type == DeviceType::meta) return empty_batch(config, device);
  Batch batch = empty_batch(config, kCpu);
  const Shape shape = batch.ids.shape();
  const RandomKey key{config.seed, static_cast<std::uint32_t>(step), 0, kUseDataOrder,
                      static_cast<std::uint16_t>(micro)};
  const auto vocab = static_cast<std::uint32_t>(config.model.vocab_size);
  const auto draw = [&](std::int64_t i) {
    return static_cast<std::int32_t>(random_u32(key, static_cast<std::uint64_t>(i)) % vocab);
  };
  auto* ids = batch.ids.mutable_data<std::int32_t>();
  auto* targets = batch.targets.mutable_data<std::int32_t>();
  if (batch.rows.defined()) {
    auto* rows = batch.rows.mutable_data<std::int32_t>();
    for (std::int64_t i = 0; i < shape.numel(); ++i) ids[i] = draw(i);
    for (std::int64_t i = 0; i < batch.counted; ++i) {
      rows[i] = static_cast<std::int32_t>(i % shape.numel());
      targets[i] = draw(shape.numel() + i);
    }
    return to_device(batch, device);
  }
  std::int64_t at = 0;
  for (std::int64_t b = 0; b < shape[0]; ++b, ++at) {
    for (std::int64_t t = 0; t < shape[1]; ++t, ++at) {
      *ids++ = draw(at);
      *targets++ = draw(at + 1);
    }
  }
  return to_device(batch, device);
}

// Nothing else says which.
bool takes_own_vocabulary(const RunConfig& run) {
  return run.model.vocab_size == 0 && !run.preset.empty() && run.data.empty() &&
         run.task == TaskKind::text;
}

}  // namespace

std::string vocabulary_note(const RunConfig& run) {
  if (!takes_own_vocabulary(run)) return "";
  const std::int64_t own = preset(run.preset, run.model.family).vocab_size;
  const std::int64_t tokens = run_tokenizer(run)->vocab_size();
  if (own == tokens) return "";
  return concat("the vocabulary is preset ", run.preset, "'s own, ", format_count(own),
                "; a run on a text has its tokenizer's, ", format_count(tokens),
                ": name the text with --data, or give --vocab_size ", tokens);
}

RunConfig without_data(RunConfig run) {
  if (run.model.vocab_size == 0) {
    run.model.vocab_size = takes_own_vocabulary(run)
                               ? preset(run.preset, run.model.family).vocab_size
                               : run_tokenizer(run)->vocab_size();
  }
  run.model.valid_vocab = 0;
  validate(run.model);
  return run;
}

Batch empty_batch(const RunConfig& config, Device device) {
  const MemoryScope scope("batch");
  const Shape shape{config.batch_size, config.model.block_size};
  const bool labelled = config.task == TaskKind::mqar;  // the head sees the labelled rows alone
  const std::int64_t counted = labelled ? config.batch_size * config.mqar_pairs : shape.numel();
  Batch batch{Tensor::empty(shape, DType::i32, device),
              Tensor::empty(labelled ? Shape{counted} : shape, DType::i32, device), counted};
  if (labelled) batch.rows = Tensor::empty({counted}, DType::i32, device);
  return batch;
}

StepBench::StepBench(const RunConfig& config, Device device)
    : config_(config),
      device_(device),
      model_(config.model, training_dtype(config, device), device),
      optimizer_(named_tensors(model_), adamw_options(config)),
      tokens_(config.batch_size * config.model.block_size * config.gradient_accumulation_steps),
      flops_(flops_per_token(config.model, config.model.block_size) *
             static_cast<double>(tokens_)) {
  model_.initialize(config.seed);
}

StepBench::Step StepBench::step(const StepHooks& hooks) {
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < config_.gradient_accumulation_steps; ++i) {
    batches.push_back(random_batch(config_, device_, steps_, i));
  }
  const std::int64_t before = minor_faults();
  const double seconds = seconds_of([&] {
    train_step(model_, optimizer_, config_, steps_, config_.learning_rate, batches, hooks);
    synchronize(device_);
  });
  ++steps_;
  return {seconds, minor_faults() - before};
}

std::int64_t StepBench::parameters() const {
  std::int64_t elements = 0;
  for (const NamedTensor& t : optimizer_.tensors()) elements += t.value.numel();
  return elements;
}

double StepBench::optimizer_bytes() const {
  // Reads g for the norm; then reads w, g, m, v and writes w, m, v.
  return static_cast<double>(parameters()) * 8 * sizeof(float);
}

Ceiling::Ceiling(const ModelConfig& model, std::int64_t tokens, Device device)
    : a_(Tensor::full({tokens, model.n_embd}, 0.5, DType::f32, device)),
      b_(Tensor::full({model.n_embd, model.ff_width()}, 0.5, DType::f32, device)),
      c_(Tensor::empty({tokens, model.ff_width()}, DType::f32, device)),
      from_(Tensor::full({copied_elements(device)}, 0.5, DType::f32, device)),
      to_(Tensor::full({copied_elements(device)}, 0.5, DType::f32, device)) {
  if (device.type != DeviceType::cpu) return;
  scratch_.resize(gemm_scratch_bytes(a_.view(), b_.view(), c_.mutable_view()));
}

double Ceiling::flops_per_second() {
  const NoGradGuard no_grad;
  const Device device = a_.device();
  synchronize(device);
  const double seconds = seconds_of([&] {
    if (device.type == DeviceType::cpu) {
      gemm(a_.view(), b_.view(), c_.mutable_view(), {.scratch = scratch_});
    } else {
      c_ = matmul(a_, b_);
    }
    synchronize(device);
  });
  return 2 * static_cast<double>(a_.numel()) * static_cast<double>(b_.size(1)) / seconds;
}

double Ceiling::bytes_per_second() {
  const Device device = from_.device();
  synchronize(device);
  const double seconds = seconds_of([&] {
    copy(to_, from_);
    synchronize(device);
  });
  return 2 * static_cast<double>(from_.nbytes()) / seconds;
}

}  // namespace duet
