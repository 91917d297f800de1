// What a run refuses before it writes anything.
#pragma once

#include "runtime/dtype.h"
#include "train/reporter.h"
#include "train/run_config.h"
#include "train/train_state.h"

namespace duet {

// Of config.dtype on config.device. Throws Error(device | usage) naming what this build has not.
DType training_dtype(const RunConfig& config);
// Throws Error(usage) naming the key that is out of range. The model's own keys: models/config.h.
void check_config(const RunConfig& config);
// A run that cannot fit is refused with numbers, and not by the system in mid-run: throws
// Error(memory) when weights, gradients and moments, or the peak planned on meta, exceed a limit.
void check_memory(const char* command, const RunConfig& run);
// A resume must have the model, dtype, tokenizer and data that the checkpoint was trained with:
// throws Error(usage | file) listing what differs. What may differ is announced.
void check_resume(const RunConfig& config, const TrainState& saved, const TrainState& now,
                  Reporter& reporter);

}  // namespace duet
