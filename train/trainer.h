// The training run: RunConfig in, checkpoints and reports out. Files go through file_system().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "train/data.h"
#include "train/optimizer.h"
#include "train/reporter.h"
#include "train/run_config.h"
#include "train/tokenizer.h"

namespace duet {

struct Transformer;    // models/transformer.h
class NonFiniteTrace;  // train/nonfinite.h

enum class StepPhase : std::uint8_t { forward, backward, update };

// Places where a test or a profile may reach into a step.
struct StepHooks {
  // After backward, before the norm: may change gradients.
  std::function<void(std::int64_t step, const std::vector<NamedTensor>&)> after_backward;
  // A phase begins: forward and backward of every micro-batch, then the update.
  std::function<void(StepPhase)> on_phase;
};

struct StepResult {
  double loss = 0;       // mean over the counted targets of all micro-batches
  double grad_norm = 0;  // before clipping
  std::int64_t tokens = 0;
  bool skipped = false;  // not finite: weights and moments are as before
  std::string reason;    // why it was skipped, with the op that made the first bad number
};

AdamWOptions adamw_options(const RunConfig& config);

// One optimizer step over micro-batches: forward, backward, norm, clip, update. Every target counts
// the same, whichever micro-batch it is in. `step` counts from 0 and keys the dropout. A step that
// is skipped is run again, `after_backward` included, to find out why. `trace` sees the ops at
// work. Throws Stopped; weights and moments are then as before.
StepResult train_step(Transformer& model, AdamW& optimizer, const RunConfig& config,
                      std::int64_t step, double lr, const std::vector<Batch>& micro_batches,
                      const StepHooks& hooks = {}, NonFiniteTrace* trace = nullptr);

struct TrainResult {
  std::int64_t step = 0;          // steps done
  bool already_complete = false;  // resume found a finished run; nothing was written
  int signal = 0;                 // the one that asked for the stop; 0: none
  double last_loss = 0;
  double best_loss = 0;
  std::int64_t best_step = -1;
  std::int64_t skipped_steps = 0;
  std::string checkpoint;  // the last one written
};

// What the run needs from outside.
struct TrainContext {
  Reporter* reporter = nullptr;  // null: silent
  // Files for out_dir, (name, content): config.toml, env.json. Written once the run is locked.
  std::vector<std::pair<std::string, std::string>> run_files;
  // The settings for the record in every checkpoint; train/run_record.h.
  std::map<std::string, std::string> settings;
  StepHooks hooks;
  double diagnostics_share = 0.02;  // of the time between evaluations
};

// Trains until max_iters, or until a stop is requested (runtime/stop.h): the step at work is then
// dropped, what was done before it is saved. A save that fails is told and tried again later; only
// the last one of a run throws. Takes out_dir's lock for the whole run. Refuses
// (Error) before anything is written: a device or dtype this build has not, data that does not fit,
// an existing run without `resume`, a resume whose model, data or tokenizer differ. Throws
// Error(non_finite) after max_nonfinite_steps skipped steps in a row.
TrainResult train(const RunConfig& config, const TrainContext& context = {});

// The sizes that follow from the tokenizer, filled in: a vocab_size of 0 becomes the tokenizer's, a
// larger one is padding and leaves valid_vocab at the tokenizer's.
// Throws Error(usage) when vocab_size is smaller than the tokenizer's.
ModelConfig resolve_model(const RunConfig& config, const Tokenizer& tokenizer);

}  // namespace duet
