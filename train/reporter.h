// Reporter: what the trainer tells, apart from how it is shown. The console, metrics.jsonl and
// tests are reporters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/config.h"
#include "train/diagnostics.h"

namespace duet {

// Told once, when everything is checked, the run is locked and out_dir exists, before the first
// step.
struct StartReport {
  std::int64_t step = 0;  // steps already done: 0, or where a resumed run goes on. Log lines of
                          // later steps are from an interrupted run and will come again.
  std::int64_t tokens = 0;
  std::string resumed_from;  // the checkpoint's directory; empty for a new run
  ModelConfig model;         // as built: vocabulary filled in
  std::string device, dtype, tokenizer;
  std::int64_t threads = 0;
  std::int64_t parameters = 0;
  std::int64_t coupling_parameters = 0;
  std::int64_t tokens_per_step = 0;  // batch x block x accumulation
  std::int64_t train_tokens = 0, val_tokens = 0;
  std::uint64_t planned_bytes = 0;  // peak of the tensors, walked on meta
  std::uint64_t process_bytes = 0;  // and of the whole process, at most; 0 on a GPU
};

struct StepReport {
  std::int64_t step = 0;  // steps done, counting this one
  std::int64_t max_iters = 0;
  std::int64_t tokens = 0;  // trained on since step 0
  double loss = 0;          // mean over the counted targets of the step; NaN when skipped
  double grad_norm = 0;     // before clipping
  double lr = 0;
  double seconds = 0;  // wall time of this step (monotonic clock)
  double flops = 0;    // of this step, forward and backward
  std::int64_t step_tokens = 0;
  std::uint64_t memory_bytes = 0;  // allocator's peak so far
};

struct EvalReport {
  std::int64_t step = 0;
  std::int64_t tokens = 0;
  double loss = 0;  // nats per token
  double ppl = 0;
  double bits_per_byte = 0;
  bool best = false;
  // Step size of the coupling per layer and head; empty without coupling.
  std::vector<std::vector<double>> coupling_dt;
  // lambda of differential attention, likewise (diff: one a layer); empty with softmax.
  std::vector<std::vector<double>> diff_lambda;
  std::optional<Diagnostics> diagnostics{};  // of a sample of the validation part, where asked for
  std::optional<double> accuracy{};  // of a task with labels; bits_per_byte has no meaning then
  bool look_left_out = false;        // the diagnostics, which would have taken too long
};

class Reporter {
 public:
  Reporter() = default;
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;
  virtual ~Reporter() = default;
  virtual void on_start(const StartReport&) {}
  virtual void on_step(const StepReport&) {}
  // An evaluation begins; on_eval follows unless a stop signal cuts it off.
  virtual void on_eval_start(std::int64_t /*step*/) {}
  virtual void on_eval(const EvalReport&) {}
  // A checkpoint is about to become final: what was told of its steps must be on the disk first.
  virtual void on_save() {}
  virtual void on_checkpoint(std::int64_t /*step*/, const std::string& /*directory*/) {}
  // False when the evaluation of this step was told and lost: a resume repeats it.
  virtual bool holds_evaluation(std::int64_t /*step*/) const { return true; }
  // Something the user should read: a skipped step, a rejected checkpoint, a likely mistake.
  virtual void on_notice(const std::string& /*text*/) {}
};

}  // namespace duet
