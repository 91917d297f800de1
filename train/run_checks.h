// What a run refuses before it writes anything.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/device.h"
#include "runtime/dtype.h"
#include "train/profile/plan.h"
#include "train/reporter.h"
#include "train/run_config.h"
#include "train/train_state.h"

namespace duet {

// Of config.dtype. Throws Error(usage) for a dtype that there is not, and for one that the device
// has no kernels for; on meta, for one that is in no plan of the device it stands for.
DType training_dtype(const RunConfig& config, Device device);
// A model that the device's kernels are not made for, such as one with too wide heads: throws
// Error(usage) with the message of the op that refuses it. One token is walked on meta, so nothing
// but the ops says what they take.
void check_kernels(const ModelConfig& model, Device device);
// Throws Error(usage) naming the key that is out of range. The model's own keys: models/config.h.
void check_config(const RunConfig& config);
// config.memory_limit in bytes; nothing when it is left to the device. Throws Error(usage).
std::optional<std::uint64_t> memory_limit_of(const RunConfig& config);
// What a memory_limit bounds: the process on the CPU, the tensors on a GPU.
MemoryMeasure measure_of_limit(Device device);
// What memory_limit leaves the tensors of a run that was planned to fit below it.
std::optional<std::uint64_t> tensor_limit(const RunConfig& run, const MemoryPlan& plan);
// A run that cannot fit is refused with numbers and a setting that does, and not by the system in
// mid-run: throws Error(usage) as check_kernels(), and for a batch that kernels are not made for;
// Error(memory) when weights, gradients and moments, or what is planned on meta, exceed
// memory_limit or what the system has free: in main memory, or of address space where ulimit bounds
// that.
MemoryPlan check_memory(const char* command, const RunConfig& run);
// For a run that ran out of memory though its plan fitted, because others took it since: a setting
// that takes less and fits now.
std::string advice_below(const RunConfig& run, const MemoryPlan& plan);
// A resume must have the model, dtype, tokenizer and data that the checkpoint was trained with:
// throws Error(usage | file) listing what differs. What may differ is announced.
void check_resume(const RunConfig& config, const TrainState& saved, const TrainState& now,
                  Reporter& reporter);

}  // namespace duet
