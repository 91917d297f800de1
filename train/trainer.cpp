#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <optional>
#include <utility>

#include "models/flops.h"
#include "models/transformer.h"
#include "runtime/allocator.h"
#include "runtime/cpu/parallel.h"
#include "runtime/file_system.h"
#include "runtime/memory_trace.h"
#include "runtime/stop.h"
#include "train/checkpoint.h"
#include "train/checkpoint_files.h"
#include "train/device_choice.h"
#include "train/evaluate.h"
#include "train/live_limit_scope.h"
#include "train/look.h"
#include "train/mqar.h"
#include "train/nonfinite.h"
#include "train/run_checks.h"
#include "train/run_directory.h"
#include "train/schedule.h"
#include "train/text.h"

namespace duet {
namespace {

Reporter& silent() {
  static Reporter reporter;
  return reporter;
}

// One run, from a checked configuration to its last checkpoint.
class Run {
 public:
  Run(const RunConfig& config, const TrainContext& context)
      : config_(config),
        context_(context),
        reporter_(context.reporter == nullptr ? silent() : *context.reporter),
        checks_(config.trace_nonfinite),
        looks_(context.diagnostics_share) {}

  TrainResult operator()();

 private:
  void whole_run();
  bool is_complete(TrainResult& result);
  void prepare();
  void build();
  void resume(const CheckpointReader& checkpoint);
  void refuse_existing() const;
  void announce() const;
  Batch next_batch(std::int64_t sample);  // windows or examples from this one on
  double unused_head_flops(std::int64_t labelled) const;
  void one_step();
  void evaluate_now();
  void look_inside(EvalReport& report);
  std::optional<Error> try_save();
  void save();
  void save_the_end();
  std::int64_t saves_to_come() const;
  void steps();
  [[noreturn]] void out_of_memory(const Error& error) const;
  bool due(std::int64_t interval) const { return interval > 0 && state_.step % interval == 0; }
  bool at_end() const { return state_.step >= config_.max_iters; }
  bool eval_due() const {
    return config_.eval_interval > 0 && state_.last_eval_step != state_.step &&
           (at_end() || due(config_.eval_interval));
  }

  RunConfig config_;
  const TrainContext& context_;
  Reporter& reporter_;
  NonFiniteTrace checks_;
  Device device_ = kCpu;
  DType dtype_ = DType::f32;
  std::unique_ptr<Tokenizer> tokenizer_;
  const MqarTask* mqar_ = nullptr;  // the tokenizer's; null: the task is text
  Dataset data_;                    // of a text
  std::optional<RunDirectory> directory_;
  std::optional<AllocatorTrace> trace_;
  std::optional<Transformer> model_;
  std::optional<AdamW> optimizer_;
  std::optional<WindowOrder> order_;
  std::optional<CheckpointWriter> writer_;
  TrainState state_;
  std::string resumed_from_;
  MemoryPlan plan_;
  TrainResult result_;
  Looks looks_;
  bool best_unsaved_ = false;     // the last evaluation was the best so far
  std::int64_t told_again_ = -1;  // the step whose evaluation was saved but not kept by a reporter
  bool unsaved_ = true;           // state_ or weights changed since the last checkpoint
};

// A finished run is left as it is, down to the last byte.
bool Run::is_complete(TrainResult& result) {
  if (!config_.resume) return false;
  const auto candidates = list_checkpoints(config_.out_dir + "/checkpoints");
  if (candidates.empty() || candidates[0].step < config_.max_iters) return false;
  Reporter quiet;  // rejected checkpoints are named when the run goes on
  const CheckpointReader newest = CheckpointReader::open(config_.out_dir, quiet, true);
  const bool owes_evaluation = newest.state().step == config_.max_iters &&
                               config_.eval_interval > 0 &&
                               (newest.state().last_eval_step != newest.state().step ||
                                !reporter_.holds_evaluation(newest.state().step));
  if (newest.state().step < config_.max_iters || owes_evaluation) return false;
  reporter_.on_notice(concat("already complete: ", newest.directory(), " is step ",
                             newest.state().step, " of ", config_.max_iters,
                             "; raise max_iters to go on"));
  CheckpointWriter(config_.out_dir + "/checkpoints", newest.state().run_id, config_.keep, reporter_)
      .tidy_up();
  result.already_complete = true;
  result.step = newest.state().step;
  result.best_loss = newest.state().best_loss;
  result.best_step = newest.state().best_step;
  result.skipped_steps = newest.state().skipped_steps;
  result.checkpoint = newest.directory();
  return true;
}

void Run::refuse_existing() const {
  check(config_.resume || !has_run(config_.out_dir), ErrorKind::usage, config_.out_dir,
        ": it already holds a run; add --resume to go on with it, or choose another out_dir");
  refuse_foreign_files(config_.out_dir);
}

// Everything that can be refused without writing.
void Run::prepare() {
  refuse_existing();
  check(!config_.resume || file_system().exists(config_.out_dir), ErrorKind::usage, config_.out_dir,
        ": there is no run to resume; leave out --resume to start one");
  tokenizer_ = run_tokenizer(config_);
  config_.model = resolve_model(config_, *tokenizer_);
  validate(config_.model);
  mqar_ = tokenizer_->mqar();
  if (mqar_ == nullptr) data_ = load_dataset(config_, *tokenizer_);
  plan_ = check_memory("train", config_);
}

void Run::build() {
  std::optional<CheckpointReader> checkpoint;
  if (config_.resume && has_checkpoints(config_.out_dir)) {
    checkpoint = CheckpointReader::open(config_.out_dir, reporter_, /*with_optimizer=*/true);
  } else if (config_.resume) {
    reporter_.on_notice(concat(config_.out_dir, " has no checkpoint yet; starting at step 0"));
  }
  if (mqar_ != nullptr) {
    order_.emplace(mqar_order(*mqar_, config_.seed));
  } else {
    order_.emplace(data_.train->size(), config_.model.block_size, config_.seed);
  }
  state_.run_id = checkpoint ? checkpoint->state().run_id : make_run_id();
  state_.settings = context_.settings;
  state_.model = config_.model;
  state_.seed = config_.seed;
  state_.adamw = adamw_options(config_);
  state_.dtype = name(dtype_);
  state_.device = name(device_.type);
  state_.threads = num_threads();
  state_.tokenizer = tokenizer_->name();
  state_.tokenizer_hash = tokenizer_->hash();
  state_.data = data_.data;
  state_.val_data = data_.val_data;
  state_.windows_per_epoch = order_->windows_per_epoch();

  if (checkpoint) check_resume(config_, checkpoint->state(), state_, reporter_);

  if (!config_.alloc_trace.empty()) trace_.emplace(config_.alloc_trace, allocator(device_));
  model_.emplace(config_.model, dtype_, device_);
  optimizer_.emplace(named_tensors(*model_), state_.adamw);
  directory_->make_directory("checkpoints");
  writer_.emplace(directory_->path("checkpoints"), state_.run_id, config_.keep, reporter_);
  if (checkpoint) {
    resume(*checkpoint);
  } else if (config_.init_from == "scratch") {
    model_->initialize(config_.seed);
  } else {
    load_initial_weights(config_.init_from, optimizer_->tensors(), state_, reporter_);
  }
  const std::string bad = first_non_finite(optimizer_->tensors());
  check(bad.empty(), ErrorKind::file, checkpoint ? checkpoint->directory() : config_.init_from,
        ": ", bad, " holds NaN or infinity; training cannot start from it");
  directory_->remove_leftovers();  // only now: a run that is refused changes nothing
  writer_->remove_leftovers();
  writer_->check_space(*optimizer_, saves_to_come());  // rather now than after hours
}

void Run::resume(const CheckpointReader& checkpoint) {
  const TrainState& saved = checkpoint.state();
  checkpoint.load_weights(optimizer_->tensors());
  checkpoint.load_optimizer(*optimizer_);
  writer_->ignore(checkpoint.rejected());
  state_.step = saved.step;
  state_.samples = saved.samples;
  state_.tokens = saved.tokens;
  state_.skipped_steps = saved.skipped_steps;
  state_.skipped_in_row = saved.skipped_in_row;
  state_.last_eval_step = saved.last_eval_step;
  state_.best_step = saved.best_step;
  state_.best_loss = saved.best_loss;
  if (saved.last_eval_step == saved.step && !reporter_.holds_evaluation(saved.step)) {
    state_.last_eval_step = -1;
    told_again_ = saved.step;
  }
  unsaved_ = false;
  resumed_from_ = checkpoint.directory();
  result_.checkpoint = resumed_from_;
}

void Run::announce() const {
  StartReport start;
  start.step = state_.step;
  start.tokens = state_.tokens;
  start.resumed_from = resumed_from_;
  start.model = config_.model;
  start.device = device_words(device_);
  start.dtype = config_.dtype;
  start.tokenizer = state_.tokenizer;
  start.threads = state_.threads;
  for (const NamedTensor& t : optimizer_->tensors()) {
    start.parameters += t.value.numel();
    if (t.name.find("coupling.") != std::string::npos) {
      start.coupling_parameters += t.value.numel();
    }
  }
  start.tokens_per_step =
      config_.batch_size * config_.model.block_size * config_.gradient_accumulation_steps;
  if (mqar_ == nullptr) {
    start.train_tokens = data_.train->size();
    start.val_tokens = data_.val->size();
  }
  start.planned_bytes = plan_.peak();
  start.process_bytes = plan_.process.resident;
  reporter_.on_start(start);
}

Batch Run::next_batch(std::int64_t sample) {
  if (mqar_ != nullptr) {
    return to_device(mqar_training_batch(*mqar_, *order_, config_.seed, sample, config_.batch_size),
                     device_);
  }
  return to_device(
      training_batch(*data_.train, *order_, sample, config_.batch_size, config_.model.block_size),
      device_);
}

// Of the positions that have no label: the head is not computed there.
double Run::unused_head_flops(std::int64_t labelled) const {
  const std::int64_t all =
      config_.batch_size * config_.model.block_size * config_.gradient_accumulation_steps;
  return 6.0 * static_cast<double>((all - labelled) * config_.model.n_embd) *
         static_cast<double>(config_.model.vocab_size);
}

void Run::one_step() {
  const auto begin = std::chrono::steady_clock::now();
  const double poison_begin = allocator(device_).stats().poison_seconds;
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < config_.gradient_accumulation_steps; ++i) {
    batches.push_back(next_batch(state_.samples + i * config_.batch_size));
  }
  const double lr = learning_rate(schedule_of(config_), state_.step);
  const StepResult step =
      train_step(*model_, *optimizer_, config_, state_.step, lr, batches, context_.hooks, &checks_);
  directory_->keep();
  const std::int64_t first_sample = state_.samples;
  state_.samples += config_.batch_size * config_.gradient_accumulation_steps;
  state_.optimizer_steps = optimizer_->steps();
  ++state_.step;
  unsaved_ = true;
  for (const std::string& warning : checks_.take_warnings()) {
    reporter_.on_notice(concat("step ", state_.step, ": ", warning));
  }
  if (step.skipped) {
    ++state_.skipped_steps;
    ++state_.skipped_in_row;
    reporter_.on_notice(concat("step ", state_.step, " was skipped: ", step.reason, "; windows ",
                               first_sample, " to ", state_.samples - 1, "; ",
                               state_.skipped_in_row, " in a row, the run stops at ",
                               config_.max_nonfinite_steps));
  } else {
    state_.skipped_in_row = 0;
    state_.tokens += step.tokens;
    result_.last_loss = step.loss;
  }
  StepReport report;
  report.step = state_.step;
  report.max_iters = config_.max_iters;
  report.tokens = state_.tokens;
  report.loss = step.skipped ? std::nan("") : step.loss;
  report.grad_norm = step.grad_norm;
  report.lr = lr;
  report.step_tokens = step.tokens;
  report.flops = flops_per_token(config_.model, config_.model.block_size) *
                 static_cast<double>(config_.batch_size * config_.model.block_size *
                                     config_.gradient_accumulation_steps);
  if (mqar_ != nullptr) report.flops -= unused_head_flops(step.tokens);
  const MemoryStats memory = allocator(device_).stats();
  report.memory_bytes = memory.peak_allocated;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() -
                   (memory.poison_seconds - poison_begin);
  reporter_.on_step(report);
  check(state_.skipped_in_row < config_.max_nonfinite_steps, ErrorKind::non_finite,
        "train: stopped at step ", state_.step, ": ", counted(state_.skipped_in_row, "step"),
        state_.skipped_in_row == 1 ? " was not finite, because "
                                   : " in a row were not finite, the last because ",
        step.reason, "; the newest checkpoint is ",
        result_.checkpoint.empty() ? "none" : result_.checkpoint,
        "; lower learning_rate, or look at windows ", first_sample, " to ", state_.samples - 1);
}

// Attention maps and lambda on a few sequences of the validation part.
void Run::look_inside(EvalReport& report) {
  const bool differential = config_.model.scoring != Scoring::softmax;
  if (config_.diagnostics == 0 && !differential) return;
  const std::int64_t sequences = std::max<std::int64_t>(1, config_.diagnostics);
  const std::int64_t tokens = std::min(config_.model.block_size, kLookTokens);
  const Tensor ids = mqar_ != nullptr
                         ? mqar_test_ids(*mqar_, config_.seed, sequences).slice_view(1, 0, tokens)
                         : sample_sequences(*data_.val, tokens, sequences);
  if (config_.diagnostics > 0) {
    report.diagnostics = looks_.look(*model_, ids);
    report.look_left_out = !report.diagnostics;
  }
  report.diff_lambda = report.diagnostics ? report.diagnostics->lambda : diff_lambdas(*model_, ids);
}

void Run::evaluate_now() {
  reporter_.on_eval_start(state_.step);
  EvalOptions options;
  options.batch_size = config_.batch_size;
  options.batches = config_.eval_iters;
  const EvalResult eval = mqar_ != nullptr ? evaluate_mqar(*model_, *mqar_, config_.seed, options)
                                           : evaluate(*model_, *data_.val, options);
  state_.last_eval_step = state_.step;
  const bool again = state_.step == told_again_;  // the checkpoint has it
  if (!again) unsaved_ = true;
  // NaN is never the best.
  const bool best =
      std::isfinite(eval.loss) &&
      (state_.best_step < 0 || state_.best_step == state_.step || eval.loss < state_.best_loss);
  if (best) {
    state_.best_loss = eval.loss;
    state_.best_step = state_.step;
  }
  best_unsaved_ = best && state_.step > 0 && !again;
  EvalReport report{state_.step,
                    state_.tokens,
                    eval.loss,
                    eval.ppl,
                    eval.bits_per_byte,
                    best,
                    model_->coupling_step_sizes(),
                    {},
                    {},
                    eval.accuracy};
  look_inside(report);
  reporter_.on_eval(report);
}

// What kept the checkpoint from being written; nothing: it is there.
std::optional<Error> Run::try_save() {
  directory_->keep();
  best_unsaved_ = false;
  if (!unsaved_) return std::nullopt;
  try {
    result_.checkpoint = writer_->save(state_, *optimizer_);
    unsaved_ = false;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::io && error.kind() != ErrorKind::file) throw;
    return error;
  }
  return std::nullopt;
}

// A save that fails ends no run that can go on: the next interval tries again.
void Run::save() {
  if (const auto error = try_save()) {
    reporter_.on_notice(concat("step ", state_.step, " could not be saved: ", error->what(),
                               "; training goes on, and the next save tries again; the newest "
                               "checkpoint is ",
                               result_.checkpoint.empty() ? "none" : result_.checkpoint));
  }
}

void Run::save_the_end() {
  if (const auto error = try_save()) {
    throw Error(ErrorKind::io,
                concat("train: the end, step ", state_.step,
                       ", could not be saved: ", error->what(), "; the newest checkpoint is ",
                       result_.checkpoint.empty() ? "none" : result_.checkpoint));
  }
}

// At most: of intervals, of evaluations that are the best so far, and of the end.
std::int64_t Run::saves_to_come() const {
  const std::int64_t steps = std::max<std::int64_t>(0, config_.max_iters - state_.step);
  const auto times = [&](std::int64_t interval) { return interval > 0 ? steps / interval : 0; };
  return times(config_.save_interval) + times(config_.eval_interval) + 1;
}

void Run::steps() {
  const std::int64_t save_interval =
      config_.save_interval > 0 ? config_.save_interval : config_.eval_interval;
  try {
    while (true) {
      check_stop();
      // The evaluation of the steps done so far; a resumed run may still owe it.
      if (eval_due()) evaluate_now();
      if (at_end()) break;
      if (best_unsaved_ || (due(save_interval) && state_.step > 0)) save();
      check_stop();
      one_step();
    }
  } catch (const Stopped&) {
    optimizer_->zero_grad();  // of a step that was cut off
  } catch (const Error& error) {
    // A text that can no longer be read: what was learned from it stays.
    if (error.kind() != ErrorKind::io && error.kind() != ErrorKind::file) throw;
    if (state_.step > 0) save();
    throw;
  }
  if (state_.step > 0) save_the_end();  // a run without a step leaves no trace
  if (trace_) trace_->finish();
}

// The plan held, so others took the memory since: less of it must do.
void Run::out_of_memory(const Error& error) const {
  throw Error(ErrorKind::memory, concat("train: step ", state_.step + 1, ": ", error.what(),
                                        ";\n  the newest checkpoint is ",
                                        result_.checkpoint.empty() ? "none" : result_.checkpoint,
                                        ";\n  ", advice_below(config_, plan_)));
}

TrainResult Run::operator()() {
  try {
    whole_run();
  } catch (const Stopped& stopped) {  // before the steps: there is nothing new to save
    result_.step = state_.step;
    result_.signal = stopped.signal;
  }
  return result_;
}

void Run::whole_run() {
  device_ = training_device(config_.device);
  dtype_ = training_dtype(config_, device_);
  check_config(config_);
  if (is_complete(result_)) return;
  if (config_.threads > 0) set_num_threads(static_cast<int>(config_.threads));  // the plan's too
  prepare();
  const PoisonScope poison(allocator(device_), config_.alloc_poison);
  directory_.emplace(config_.out_dir);
  refuse_existing();  // another run may have come and gone since
  const LiveLimitScope limit(device_, tensor_limit(config_, plan_));
  build();
  for (const auto& [file, content] : context_.run_files) directory_->write(file, content);
  directory_->write("tokenizer.json", tokenizer_->json());
  directory_->sync();
  announce();
  try {
    steps();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::memory) out_of_memory(error);
    throw;
  } catch (const std::bad_alloc&) {
    out_of_memory(Error(ErrorKind::memory, "out of memory: a small request was refused"));
  }
  writer_->remove_leftovers();  // what pruning could not
  result_.step = state_.step;
  result_.signal = at_end() && !eval_due() ? 0 : stop_requested();
  result_.best_loss = state_.best_loss;
  result_.best_step = state_.best_step;
  result_.skipped_steps = state_.skipped_steps;
}

}  // namespace

ModelConfig resolve_model(const RunConfig& config, const Tokenizer& tokenizer) {
  ModelConfig model = config.model;
  const std::int64_t needed = tokenizer.vocab_size();
  if (model.vocab_size == 0) model.vocab_size = needed;
  check(model.vocab_size >= needed, ErrorKind::usage, "vocab_size: got ", model.vocab_size,
        ", expected at least the tokenizer's ", needed, "; leave the key out to take that");
  model.valid_vocab = model.vocab_size > needed ? needed : 0;
  return model;
}

TrainResult train(const RunConfig& config, const TrainContext& context) {
  return Run(config, context)();
}

}  // namespace duet
