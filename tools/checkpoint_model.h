// A checkpoint as a model that is ready to use: what eval and generate begin with.
#pragma once

#include <memory>
#include <string>

#include "models/transformer.h"
#include "train/checkpoint.h"
#include "train/tokenizer.h"

namespace duet {

struct CheckpointModel {
  CheckpointReader checkpoint;
  std::unique_ptr<Tokenizer> tokenizer;
  Transformer model;
};

// The model on `device` (auto, cpu or cuda). Rejected checkpoints are named on standard error.
// Throws Error(file) when none is good, Error(usage) where the device is not usable or has no
// kernels for the model.
CheckpointModel open_model(const std::string& path, std::int64_t threads,
                           const std::string& device);

// What to do where not even that much fits on `device`.
std::string elsewhere(Device device);

}  // namespace duet
