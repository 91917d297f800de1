// Checkpoints: out_dir/checkpoints/step_00000200/{model.safetensors, optim.safetensors, state.json,
// manifest.json}. A checkpoint exists whole or not at all: it is written beside, synced, and
// renamed; a manifest with sizes and hashes decides whether it is good.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "train/data.h"
#include "train/optimizer.h"
#include "train/reporter.h"
#include "train/run_config.h"

namespace duet {

struct Transformer;  // models/transformer.h

// Where a run stands, apart from its tensors: what state.json holds.
struct TrainState {
  std::int64_t step = 0;     // steps done
  std::int64_t samples = 0;  // windows consumed: the loader's position
  std::int64_t tokens = 0;   // targets trained on
  std::int64_t optimizer_steps = 0;
  std::int64_t skipped_steps = 0;  // non-finite ones
  double best_loss = 0;            // of the validation; meaningful when best_step >= 0
  std::int64_t best_step = -1;
  std::int64_t windows_per_epoch = 0;
  std::int64_t threads = 0;
  bool complete = false;  // the run reached max_iters
  std::uint64_t seed = 0;
  std::string run_id;
  AdamWOptions adamw;
  ModelConfig model;
  std::string dtype;
  std::string tokenizer;  // its name
  std::string tokenizer_hash;
  FileIdentity data, val_data;
};

// Writes checkpoints into one directory, atomically, and prunes those of its own run.
class CheckpointWriter {
 public:
  // `directory` is out_dir/checkpoints; it is made if missing.
  CheckpointWriter(std::string directory, std::string run_id, std::int64_t keep,
                   Reporter& reporter);

  // Writes one checkpoint, then prunes: the newest max(keep, 2) by step stay, and the one of
  // best_step. Returns its directory. On failure the temporary directory is removed, the other
  // checkpoints are untouched, and the error says what was being written.
  std::string save(const TrainState& state, AdamW& optimizer);
  // Removes what a killed run left behind (.tmp-*, .trash-*). Requires the run's lock.
  void remove_leftovers();

 private:
  void prune(std::int64_t best_step);

  std::string directory_, run_id_;
  std::int64_t keep_;
  Reporter& reporter_;
};

// One good checkpoint, opened for reading.
class CheckpointReader {
 public:
  // A run directory (its newest good checkpoint), or one checkpoint directory. Each candidate that
  // is rejected is named with the reason through `reporter`. Throws Error(file) when none is good.
  // `with_optimizer` also asks for the moments (resume).
  static CheckpointReader open(const std::string& path, Reporter& reporter,
                               bool with_optimizer = false);

  const std::string& directory() const { return directory_; }
  const TrainState& state() const { return state_; }
  const ModelConfig& model_config() const { return state_.model; }
  // The tokenizer the run was trained with, checked by its hash.
  std::unique_ptr<Tokenizer> tokenizer() const;

  // Overwrite weights, or moments and step count. Nothing is written before every name and shape
  // was compared; throws Error(file) listing what differs, up to 10 and the count.
  void load_weights(const std::vector<NamedTensor>& tensors) const;
  void load_optimizer(AdamW& optimizer) const;

 private:
  CheckpointReader(std::string directory, TrainState state)
      : directory_(std::move(directory)), state_(std::move(state)) {}

  std::string directory_;
  TrainState state_;
};

// True when `out_dir` holds any checkpoint directory, good or not.
bool has_checkpoints(const std::string& out_dir);

// Weights from a run directory, a checkpoint directory, or a .safetensors file, for init_from.
void load_initial_weights(const std::string& path, const std::vector<NamedTensor>& tensors,
                          Reporter& reporter);

}  // namespace duet
