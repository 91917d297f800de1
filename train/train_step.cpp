// One optimizer step.
#include "models/transformer.h"
#include "runtime/stop.h"
#include "train/trainer.h"

namespace duet {
AdamWOptions adamw_options(const RunConfig& config) {
  return {config.beta1, config.beta2, config.adam_eps, config.weight_decay};
}

StepResult train_step(Transformer& model, AdamW& optimizer, const RunConfig& config,
                      std::int64_t step, double lr, const std::vector<Batch>& micro_batches,
                      const StepHooks& hooks) {
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
  for (std::size_t micro = 0; micro < micro_batches.size(); ++micro) {
    check_stop();
    const ForwardContext context{config.seed, static_cast<std::uint32_t>(step),
                                 static_cast<std::uint16_t>(micro), /*training=*/true};
    const Batch& batch = micro_batches[micro];
    enter(StepPhase::forward);
    const Tensor loss = batch.rows.defined()
                            ? model.loss_at(batch.ids, batch.rows, batch.targets, options, context)
                            : model.loss(batch.ids, batch.targets, options, context);
    numbers.add_loss(loss);
    enter(StepPhase::backward);
    const MemoryScope scope("loss");
    backward(loss);
  }
  enter(StepPhase::update);
  if (hooks.after_backward) hooks.after_backward(step, optimizer.tensors());
  const MemoryScope scope("optimizer");
  numbers.measure(optimizer.tensors(), config.grad_clip);
  optimizer.step(lr, numbers);
  optimizer.zero_grad();
  // Everything above is ready for a GPU before the host reads, for the first time in this step.
  const StepOutcome outcome = numbers.read(optimizer.tensors());
  result.loss = outcome.loss;
  result.grad_norm = outcome.grad_norm;
  result.skipped = outcome.skipped;
  if (outcome.skipped) {
    optimizer.set_steps(optimizer.steps() - 1);
    result.reason = outcome.first_bad.empty()
                        ? concat("the loss is ", result.loss)
                        : concat("the gradient of ", outcome.first_bad,
                                 " is not finite or too large (loss ", result.loss, ")");
  }
  return result;
}

}  // namespace duet
