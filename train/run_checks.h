// What a run refuses before it writes anything.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/device.h"
#include "runtime/dtype.h"
#include "train/reporter.h"
#include "train/run_config.h"
#include "train/train_state.h"

namespace duet {

// Of config.dtype, wherever it is to run. Throws Error(usage) for a dtype that there is not.
DType planned_dtype(const RunConfig& config);
// The same on a device that is to run it. Throws Error(usage) naming what it has no kernels for.
DType training_dtype(const RunConfig& config, Device device);
// Throws Error(usage) naming the key that is out of range. The model's own keys: models/config.h.
void check_config(const RunConfig& config);
// config.memory_limit in bytes; nothing when it is left to the device. Throws Error(usage).
std::optional<std::uint64_t> memory_limit_of(const RunConfig& config);
// A run that cannot fit is refused with numbers and a setting that does, and not by the system in
// mid-run: throws Error(memory) when weights, gradients and moments, or the peak planned on meta,
// exceed memory_limit or what config.device has free. Returns that peak.
std::uint64_t check_memory(const char* command, const RunConfig& run);
// A resume must have the model, dtype, tokenizer and data that the checkpoint was trained with:
// throws Error(usage | file) listing what differs. What may differ is announced.
void check_resume(const RunConfig& config, const TrainState& saved, const TrainState& now,
                  Reporter& reporter);

}  // namespace duet
