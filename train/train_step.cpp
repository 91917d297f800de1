// One optimizer step.
#include <cmath>
#include <limits>

#include "models/transformer.h"
#include "train/trainer.h"

namespace duet {
namespace {

// On meta there are no numbers.
double value_of(const Tensor& loss) {
  return loss.device().type == DeviceType::meta ? 0.0 : loss.item();
}

}  // namespace

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
  for (std::size_t micro = 0; micro < micro_batches.size(); ++micro) {
    const ForwardContext context{config.seed, static_cast<std::uint32_t>(step),
                                 static_cast<std::uint16_t>(micro), /*training=*/true};
    const Batch& batch = micro_batches[micro];
    enter(StepPhase::forward);
    const Tensor loss = batch.rows.defined()
                            ? model.loss_at(batch.ids, batch.rows, batch.targets, options, context)
                            : model.loss(batch.ids, batch.targets, options, context);
    result.loss += value_of(loss);
    enter(StepPhase::backward);
    const MemoryScope scope("loss");
    backward(loss);
  }
  enter(StepPhase::update);
  if (hooks.after_backward) hooks.after_backward(step, optimizer.tensors());
  const MemoryScope scope("optimizer");
  const GradientNorm norm = gradient_norm(optimizer.tensors(), config.grad_clip);
  result.grad_norm = norm.value;
  if (!std::isfinite(result.loss) || !norm.finite()) {
    result.skipped = true;
    result.reason = norm.finite() ? concat("the loss is ", result.loss)
                                  : concat("the gradient of ", norm.first_bad,
                                           " is not finite or too large (loss ", result.loss, ")");
  } else {
    optimizer.step(lr, clip_scale(norm.value, config.grad_clip));
  }
  optimizer.zero_grad();
  return result;
}

}  // namespace duet
