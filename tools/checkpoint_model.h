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

// Rejected checkpoints are named on standard error. Throws Error(file) when none is good.
CheckpointModel open_model(const std::string& path, std::int64_t threads);

}  // namespace duet
