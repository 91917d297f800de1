#include "train/profile/plan.h"

#include "models/transformer.h"
#include "runtime/allocator.h"
#include "runtime/cpu/gemm_needs.h"
#include "runtime/memory_ops.h"
#include "train/bench.h"
#include "train/device_choice.h"
#include "train/look.h"
#include "train/run_checks.h"

namespace duet {
namespace {

// Every micro-batch is there at once, but from the second on each leaves the memory as it found it:
// a walk of two is a walk of all.
void walk_step(Transformer& model, AdamW& optimizer, const RunConfig& config) {
  const Device device = model.device();
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < config.gradient_accumulation_steps; ++i) {
    batches.push_back(empty_batch(config, device));
  }
  const std::vector<Batch> walked(
      batches.begin(), batches.begin() + std::min<std::ptrdiff_t>(std::ssize(batches), 2));
  train_step(model, optimizer, config, 0, config.learning_rate, walked);
}

// As train/evaluate.h and train/mqar.h do it.
void walk_evaluation(const Transformer& model, const RunConfig& config) {
  const NoGradGuard no_grad;
  const Batch batch = empty_batch(config, model.device());
  if (config.task == TaskKind::mqar) {
    model.logits_at(batch.ids, batch.rows);
  } else {
    model.loss(batch.ids, batch.targets);
  }
}

// As train/diagnostics.h does it: one sequence at a time, a contiguous copy of one tensor at a
// time.
void walk_diagnostics(const Transformer& model, const RunConfig& config) {
  if (config.diagnostics == 0 && config.model.scoring == Scoring::softmax) return;
  const Tensor ids = Tensor::empty({std::max<std::int64_t>(1, config.diagnostics),
                                    std::min(config.model.block_size, kLookTokens)},
                                   DType::i32, model.device());
  const ForwardCapture captured = model.capture(ids.slice_view(0, 0, 1));
  for (const AttentionCapture& c : captured.attention) {
    for (const Tensor& t : {c.q, c.k, c.lambda}) {
      if (t.defined()) contiguous_copy(t);
    }
  }
}

}  // namespace

MemoryPlan plan_memory(const RunConfig& config) {
  const Device device = planning_device(config.device);
  Allocator& meta = allocator(device);
  meta.empty_cache();
  const MemoryStats before = meta.stats();
  forget_gemm_needs();
  MemoryPlan plan;
  {
    meta.reset_peak();
    Transformer model(config.model, training_dtype(config, device), device);
    AdamW optimizer(named_tensors(model), adamw_options(config));
    // A run evaluates before its first step: what the allocator cuts for it then stays cut.
    walk_evaluation(model, config);
    plan.reserved = meta.stats().peak_reserved;
    meta.reset_peak();
    walk_step(model, optimizer, config);
    plan.step = meta.stats().peak_allocated - before.allocated;
    plan.reserved = std::max<std::uint64_t>(plan.reserved, meta.stats().peak_reserved);
    meta.reset_peak();
    walk_evaluation(model, config);
    walk_diagnostics(model, config);
    plan.evaluation = meta.stats().peak_allocated - before.allocated;
    plan.reserved = std::max<std::uint64_t>(plan.reserved, meta.stats().peak_reserved);
  }
  plan.reserved -= before.reserved;
  meta.empty_cache();
  if (device.kernels() == DeviceType::cpu) {
    const ProcessBytes& process = process_before_run();
    const ProcessBytes added = added_by_run(config, plan.reserved);
    plan.process = {process.resident + added.resident, process.mapped + added.mapped};
  }
  return plan;
}

}  // namespace duet
