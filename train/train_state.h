// TrainState: where a run stands, apart from its tensors. state.json holds it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/config.h"
#include "train/data.h"
#include "train/optimizer.h"

namespace duet {

struct TrainState {
  std::int64_t step = 0;             // steps done
  std::int64_t samples = 0;          // windows consumed: the loader's position
  std::int64_t tokens = 0;           // targets trained on
  std::int64_t optimizer_steps = 0;  // AdamW's t
  std::int64_t skipped_steps = 0;    // non-finite ones
  std::int64_t skipped_in_row = 0;   // of those, at the end
  std::int64_t last_eval_step = -1;
  std::int64_t best_step = -1;
  double best_loss = 0;  // of the validation; meaningful when best_step >= 0
  std::int64_t windows_per_epoch = 0;
  std::int64_t threads = 0;
  std::string device = "cpu";  // cpu or cuda
  std::uint64_t seed = 0;
  std::string run_id;
  // What config.toml says, key by key, without out_dir; empty in older checkpoints.
  std::map<std::string, std::string> settings;
  AdamWOptions adamw;
  ModelConfig model;
  std::string dtype;
  std::string tokenizer;  // its name
  std::string tokenizer_hash;
  FileIdentity data, val_data;
};

std::string to_json(const TrainState& state);
// Throws Error(file), naming `path` and the key, for anything that is not a state this version
// writes: another optimizer, a newer format, a number out of range.
TrainState parse_state(const std::string& json, const std::string& path);

// "n_embd: 64 and 128", one line per key that differs.
std::vector<std::string> differences(const ModelConfig& a, const ModelConfig& b);

}  // namespace duet
