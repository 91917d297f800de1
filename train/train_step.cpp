// One optimizer step, and its replay where it was not finite.
#include <optional>

#include "models/transformer.h"
#include "runtime/stop.h"
#include "train/nonfinite.h"
#include "train/trainer.h"

namespace duet {
namespace {

// The forward of one micro-batch: a pure function of the weights and of what is in here.
struct MicroBatches {
  const Transformer& model;
  const RunConfig& config;
  const std::vector<Batch>& batches;
  std::int64_t step;
  LinearCrossEntropyOptions options;

  Tensor loss(std::size_t micro) const {
    const ForwardContext context{config.seed, static_cast<std::uint32_t>(step),
                                 static_cast<std::uint16_t>(micro), /*training=*/true};
    const Batch& batch = batches[micro];
    return batch.rows.defined()
               ? model.loss_at(batch.ids, batch.rows, batch.targets, options, context)
               : model.loss(batch.ids, batch.targets, options, context);
  }
};

void backward_of(const Tensor& loss) {
  const MemoryScope scope("loss");
  backward(loss);
}

// Runs a skipped step again, bit by bit the same: its weights and moments were left alone.
std::string why_skipped(const MicroBatches& micro_batches, AdamW& optimizer, const StepHooks& hooks,
                        const StepOutcome& outcome) {
  FirstNonFinite first(optimizer.tensors());
  const std::size_t count = micro_batches.batches.size();
  {
    const OpWatchScope watching(first);
    for (std::size_t micro = 0; micro < count && !first.found(); ++micro) {
      check_stop();
      first.begin(micro, count);
      backward_of(micro_batches.loss(micro));
    }
  }
  if (!first.found() && hooks.after_backward) {
    hooks.after_backward(micro_batches.step, optimizer.tensors());
  }
  std::string reason = first.reason(outcome.first_bad);
  optimizer.zero_grad();
  return concat(reason, "; loss ", short_number(outcome.loss));
}

}  // namespace

AdamWOptions adamw_options(const RunConfig& config) {
  return {config.beta1, config.beta2, config.adam_eps, config.weight_decay};
}

StepResult train_step(Transformer& model, AdamW& optimizer, const RunConfig& config,
                      std::int64_t step, double lr, const std::vector<Batch>& micro_batches,
                      const StepHooks& hooks, NonFiniteTrace* trace) {
  StepResult result;
  for (const Batch& batch : micro_batches) result.tokens += batch.counted;
  // Each micro-batch's loss is divided by the targets of all of them, so that every target weighs
  // the same: the mean of means would favour short micro-batches.
  const auto enter = [&](StepPhase phase) {
    if (hooks.on_phase) hooks.on_phase(phase);
  };
  LinearCrossEntropyOptions options;
  options.ignore_index = kIgnoredTarget;
  options.normalizer = static_cast<double>(result.tokens);
  optimizer.zero_grad();
  const auto new_numbers = [&] {
    const MemoryScope scope("optimizer");
    return StepNumbers(optimizer.tensors()[0].value.device());
  };
  StepNumbers numbers = new_numbers();
  const MicroBatches passes{model, config, micro_batches, step, options};
  std::optional<OpWatchScope> watching;
  if (trace != nullptr && trace->begin_step(optimizer.tensors())) watching.emplace(*trace);
  for (std::size_t micro = 0; micro < micro_batches.size(); ++micro) {
    check_stop();
    enter(StepPhase::forward);
    const Tensor loss = passes.loss(micro);
    numbers.add_loss(loss);
    enter(StepPhase::backward);
    backward_of(loss);
  }
  watching.reset();
  enter(StepPhase::update);
  if (hooks.after_backward) hooks.after_backward(step, optimizer.tensors());
  {
    const MemoryScope scope("optimizer");
    numbers.measure(optimizer.tensors(), config.grad_clip);
    optimizer.step(lr, numbers);
    optimizer.zero_grad();
  }
  // Everything above is ready for a GPU before the host reads, for the first time in this step.
  const StepOutcome outcome = numbers.read(optimizer.tensors());
  result.loss = outcome.loss;
  result.grad_norm = outcome.grad_norm;
  result.skipped = outcome.skipped;
  if (trace != nullptr) trace->end_step(outcome.skipped);
  if (outcome.skipped) {
    optimizer.set_steps(optimizer.steps() - 1);
    result.reason = why_skipped(passes, optimizer, hooks, outcome);
  }
  return result;
}

}  // namespace duet
