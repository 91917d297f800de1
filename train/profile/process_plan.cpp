#include "train/profile/process_plan.h"

#include <algorithm>

#include "runtime/cpu/gemm_needs.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/process_memory.h"
#include "runtime/file_system.h"
#include "train/data.h"
#include "train/look.h"

namespace duet {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// Pages of the program and its libraries that only a step touches, and records of the run.
constexpr std::uint64_t kFirstTouched = 5 * kMiB;
// malloc keeps what the products of a step freed. Their sizes differ, and so do the two heaps that
// they come from: up to five times the largest was seen in one heap, and a tenth of small models.
constexpr std::uint64_t kKeptPacked = 4;  // times the largest
constexpr std::uint64_t kKeptByThread = 2 * kMiB;
// Beside the tensors: a mapping is asked for with 2 MiB more, and so is room for generated code.
constexpr std::uint64_t kAlignment = 2 * kMiB, kCodeRoom = 4 * kMiB, kSpare = 6 * kMiB;

// The permutation of an epoch's windows.
std::uint64_t order_bytes(const RunConfig& config) {
  if (config.task == TaskKind::mqar) return WindowOrder::bytes(config.mqar_examples);
  if (config.data.empty() || !file_system().exists(config.data)) return 0;
  const std::int64_t bytes = file_system().file_size(config.data);
  const std::int64_t trained = config.val_data.empty() ? bytes / 10 * 9 + 9 : bytes;
  return WindowOrder::bytes(trained / config.model.block_size + 1);
}

// As train/diagnostics.h takes them from malloc: for each thread a map, a second one or its copy,
// and what the singular values are computed in; of the sequence, queries, keys and the stream.
std::uint64_t diagnostics_bytes(const RunConfig& config) {
  const ModelConfig& model = config.model;
  if (config.diagnostics == 0 || config.eval_interval == 0) return 0;
  const std::int64_t threads = std::min<std::int64_t>(num_threads(), model.n_head);
  const std::int64_t maps = model.scoring == Scoring::softmax ? 2 : 3;
  const std::int64_t tokens = std::min(model.block_size, kLookTokens);
  const std::int64_t doubles = threads * maps * tokens * tokens + 3 * tokens * model.n_embd;
  return static_cast<std::uint64_t>(doubles) * sizeof(double);
}

}  // namespace

const ProcessBytes& process_before_run() {
  static const ProcessBytes before = [] {
    parallel_chunks(num_threads(), [](std::int64_t) {});
    return ProcessBytes{resident_bytes(), mapped_bytes()};
  }();
  return before;
}

ProcessBytes added_by_run(const RunConfig& config, std::uint64_t reserved) {
  const GemmNeeds& products = gemm_needs();
  const auto threads = static_cast<std::uint64_t>(num_threads());
  const std::uint64_t kept = kKeptPacked * products.packed + products.padded +
                             std::min((threads + 1) * kKeptByThread, reserved / 10);
  const std::uint64_t beside =
      kept + kFirstTouched + order_bytes(config) + diagnostics_bytes(config);
  // Where address space is bounded the threads share one heap, which their copies cut into pieces.
  return {reserved + beside + products.code,
          reserved + beside + kept + products.code_room + kAlignment + kCodeRoom + kSpare};
}

}  // namespace duet
