#include "train/run_checks.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "models/flops.h"
#include "models/transformer.h"
#include "runtime/cpu/memory_limits.h"
#include "runtime/cpu/process_memory.h"
#include "runtime/error.h"
#include "runtime/live_limit.h"
#include "runtime/printable.h"
#include "train/command_line.h"
#include "train/device_choice.h"
#include "train/profile/fit.h"
#include "train/profile/plan.h"
#include "train/text.h"

namespace duet {
namespace {

void compare_file(const char* key, const FileIdentity& saved, const FileIdentity& now) {
  check(saved.bytes == now.bytes && saved.hash == now.hash, ErrorKind::file, key, ": ",
        now.path.empty() ? "(none)" : now.path, " is not the file that the run began with: got ",
        now.bytes, " bytes, hash ", now.hash, ", expected ", saved.bytes, " bytes, hash ",
        printable(saved.hash), " (", printable(saved.path), "); restore it, or start a new run");
}

// What an op refuses of a model or a batch is the user's to change: the same message, another kind.
template <class F>
auto refuse_as_usage(F&& walk) {
  try {
    return walk();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::shape) throw;
    throw Error(ErrorKind::usage, e.what());
  }
}

// What one limit leaves a plan.
struct Room {
  MemoryBudget budget;
  std::string name;
};

// By every limit of the system, in the measure in which it counts: what the process has, and what
// is free beside that.
std::vector<Room> rooms_of(Device device) {
  std::vector<Room> rooms;
  if (device.type == DeviceType::cuda) {
    if (const std::size_t bytes = memory_room(device); bytes != 0) {
      rooms.push_back({{bytes}, concat("free on ", device_words(device))});
    }
    return rooms;
  }
  const std::uint64_t resident = resident_bytes(), mapped = mapped_bytes();
  for (const MemoryLimit& limit : memory_limits()) {
    const MemoryMeasure measure =
        limit.counts_address_space ? MemoryMeasure::mapped : MemoryMeasure::resident;
    const std::uint64_t own = limit.counts_address_space ? mapped : resident;
    rooms.push_back(
        {{own + limit.free, measure},
         concat("with what is free of the ", format_bytes(limit.total), " ", limit.name)});
  }
  return rooms;
}

// The room that leaves a plan the least.
Room tightest_room(const RunConfig& run, Device device, const MemoryPlan& plan) {
  std::vector<Room> rooms = rooms_of(device);
  if (const auto given = memory_limit_of(run)) {
    rooms.push_back({{*given, measure_of_limit(device)}, "memory_limit"});
  }
  const auto left = [&](const Room& room) {
    const MemoryBudget& budget = room.budget;
    return static_cast<double>(budget.bytes) - static_cast<double>(plan.in(budget.measure));
  };
  const auto least = std::min_element(
      rooms.begin(), rooms.end(), [&](const auto& a, const auto& b) { return left(a) < left(b); });
  return least == rooms.end() ? Room{} : *least;
}

}  // namespace

DType training_dtype(const RunConfig& config, Device device) {
  const bool on_cuda = device.kernels() == DeviceType::cuda;
  if (config.dtype == "float32") return DType::f32;
  if (config.dtype == "float64") {
    check(!on_cuda, ErrorKind::usage,
          "dtype: float64 has no kernels on CUDA: got --dtype float64, expected float32");
    return DType::f64;
  }
  check(config.dtype == "bfloat16", ErrorKind::usage, "dtype: got ", in_quotes(config.dtype),
        ", expected float32");
  check(device.type == DeviceType::meta, ErrorKind::usage, "dtype: bfloat16 has no kernels on ",
        on_cuda ? "CUDA (products, attention and norms are float32 alone)" : "the CPU",
        " in this version: got --dtype bfloat16, expected float32; ",
        advised({"profile", "--plan"}), " with the same keys shows what it would take");
  return DType::bf16;
}

void check_kernels(const ModelConfig& model, Device device) {
  if (device.kernels() == DeviceType::cpu) return;  // takes every model that there can be
  const NoGradGuard no_grad;
  const Device meta = meta_for(device);
  refuse_as_usage([&] {
    const Tensor ids = Tensor::empty({1, 1}, DType::i32, meta);
    return Transformer(model, DType::f32, meta).loss(ids, ids);
  });
}

void check_config(const RunConfig& c) {
  const auto at_least = [](const char* key, std::int64_t value, std::int64_t low) {
    check(value >= low, ErrorKind::usage, key, ": got ", value, ", expected ", low, " or more");
  };
  at_least("batch_size", c.batch_size, 1);
  at_least("gradient_accumulation_steps", c.gradient_accumulation_steps, 1);
  check(c.gradient_accumulation_steps <= 65'536, ErrorKind::usage,
        "gradient_accumulation_steps: got ", c.gradient_accumulation_steps,
        ", expected at most 65536");
  at_least("max_iters", c.max_iters, 0);
  check(c.max_iters <= 4'294'967'295, ErrorKind::usage, "max_iters: got ", c.max_iters,
        ", expected at most 4294967295");
  at_least("warmup_iters", c.warmup_iters, 0);
  at_least("eval_interval", c.eval_interval, 0);
  at_least("eval_iters", c.eval_iters, 0);
  at_least("diagnostics", c.diagnostics, 0);
  at_least("save_interval", c.save_interval, 0);
  at_least("keep", c.keep, 1);
  at_least("max_nonfinite_steps", c.max_nonfinite_steps, 1);
  check(std::isfinite(c.learning_rate) && c.learning_rate >= 0, ErrorKind::usage,
        "learning_rate: got ", c.learning_rate, ", expected a number of 0 or more");
  check(std::isfinite(c.grad_clip) && c.grad_clip >= 0, ErrorKind::usage, "grad_clip: got ",
        c.grad_clip, ", expected 0 (off) or a positive number");
}

void check_resume(const RunConfig& config, const TrainState& saved, const TrainState& now,
                  Reporter& reporter) {
  ModelConfig model = now.model;
  model.recompute = saved.model.recompute;  // changes memory, not results
  model.dropout = saved.model.dropout;      // a choice of training, not of shape
  std::string lines;
  for (const std::string& line : differences(saved.model, model)) lines += "\n  " + line;
  check(lines.empty(), ErrorKind::usage, config.out_dir,
        ": the model differs from the checkpoint's (checkpoint and now):", lines,
        "\nresume with the same model, or start a new run");
  check(saved.dtype == now.dtype, ErrorKind::usage, config.out_dir, ": the checkpoint is ",
        printable(saved.dtype), ", the run is ", now.dtype, "; resume with the same dtype");
  check(saved.tokenizer_hash == now.tokenizer_hash, ErrorKind::file, config.tokenizer,
        ": the tokenizer is not the one of the run: expected hash ",
        printable(saved.tokenizer_hash), ", found ", now.tokenizer_hash);
  compare_file("data", saved.data, now.data);
  compare_file("val_data", saved.val_data, now.val_data);
  check(saved.windows_per_epoch == now.windows_per_epoch, ErrorKind::file, config.out_dir,
        ": the loader of the checkpoint had ", saved.windows_per_epoch,
        " windows an epoch, the data gives ", now.windows_per_epoch,
        "; the checkpoint is of other data");
  const auto announce_change = [&](const char* key, auto before, auto after) {
    if (before != after)
      reporter.on_notice(concat("resume: ", key, " was ", before, ", now ", after));
  };
  announce_change("dropout", saved.model.dropout, now.model.dropout);
  announce_change("seed (another order of the data from here on)", saved.seed, now.seed);
  announce_change("beta1 (moments and step count are kept)", saved.adamw.beta1, now.adamw.beta1);
  announce_change("beta2 (moments and step count are kept)", saved.adamw.beta2, now.adamw.beta2);
  announce_change("adam_eps", saved.adamw.eps, now.adamw.eps);
  announce_change("weight_decay", saved.adamw.weight_decay, now.adamw.weight_decay);
  announce_change(
      "device (sums run in another order: losses agree in about six digits, not in their "
      "bits)",
      saved.device, now.device);
  announce_change("threads (results may differ in the last bits)", saved.threads, now.threads);
}

std::optional<std::uint64_t> memory_limit_of(const RunConfig& config) {
  if (config.memory_limit.empty()) return std::nullopt;
  const std::optional<std::uint64_t> bytes = parse_bytes(config.memory_limit);
  check(bytes.has_value(), ErrorKind::usage, "memory_limit: got ", in_quotes(config.memory_limit),
        ", expected ", kBytesForm);
  return bytes;
}

MemoryMeasure measure_of_limit(Device device) {
  return device.kernels() == DeviceType::cpu ? MemoryMeasure::resident : MemoryMeasure::tensors;
}

std::optional<std::uint64_t> tensor_limit(const RunConfig& run, const MemoryPlan& plan) {
  const std::optional<std::uint64_t> limit = memory_limit_of(run);
  if (!limit || plan.process.resident == 0) return limit;
  const std::uint64_t beside = plan.process.resident - plan.reserved;
  return std::max(*limit, beside + plan.peak()) - beside;
}

MemoryPlan check_memory(const char* command, const RunConfig& run) {
  const Device device = training_device(run.device);
  check_kernels(run.model, device);
  const auto refuse = [&](const Room& room, std::uint64_t bytes, const std::string& what,
                          const std::string& advice) {
    const auto [needed, most] = format_apart(bytes, room.budget.bytes);
    throw Error(ErrorKind::memory,
                concat(command, ": the run does not fit: got ", needed, what, ", expected at most ",
                       most, ": ", room.name, ";\n  ", advice));
  };
  // Cheap, and enough for what is far too large.
  constexpr std::uint64_t kBytesPerParameter = 4 * sizeof(float);
  MemoryPlan plan;
  plan.step = static_cast<std::uint64_t>(parameters_of(run.model)) * kBytesPerParameter;
  plan.process = {plan.step, plan.step};
  const Room first = tightest_room(run, device, plan);
  if (plan.step > first.budget.bytes) {
    refuse(first, plan.step, " for weights, gradients and moments alone",
           "use a smaller model (n_layer, n_embd)");
  }
  plan = refuse_as_usage([&] { return plan_memory(run); });
  const Room room = tightest_room(run, device, plan);
  const std::uint64_t bytes = plan.in(room.budget.measure);
  if (bytes > room.budget.bytes) {
    std::string what = " planned at peak";
    if (room.budget.measure != MemoryMeasure::tensors) {
      what = concat(room.budget.measure == MemoryMeasure::mapped ? " of address space" : "",
                    " planned for the process (", format_bytes(plan.peak()), " of it tensors)");
    }
    refuse(room, bytes, what, fit_advice(fit(run, room.budget)));
  }
  return plan;
}

std::string advice_below(const RunConfig& run, const MemoryPlan& plan) {
  const Device device = training_device(run.device);
  MemoryBudget budget = tightest_room(run, device, plan).budget;
  budget.bytes = std::min(budget.bytes, plan.in(budget.measure) - 1);
  const std::uint64_t room = memory_room(device);
  budget.tensors = room == 0 ? plan.peak() - 1 : std::min(room, plan.peak() - 1);
  return fit_advice(fit(run, budget));
}

}  // namespace duet
