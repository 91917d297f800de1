// Checkpoints: out_dir/checkpoints/step_00000200/{model.safetensors, optim.safetensors, state.json,
// manifest.json}. A checkpoint exists whole or not at all: it is written beside, synced, and
// renamed; a manifest with sizes and hashes decides whether it is good.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/optimizer.h"
#include "train/reporter.h"
#include "train/tokenizer.h"
#include "train/train_state.h"

namespace duet {

struct CheckpointCandidate;  // train/checkpoint_files.h

// Writes checkpoints into one directory, atomically, and prunes those of its own run.
class CheckpointWriter {
 public:
  // `directory` is out_dir/checkpoints; it is made if missing.
  CheckpointWriter(std::string directory, std::string run_id, std::int64_t keep,
                   Reporter& reporter);

  // Writes one checkpoint, then prunes: of this run's, the newest max(keep, 2) by step stay, and
  // the one of best_step. Where there is no room, those that would go afterwards go first. Returns
  // its directory. On failure the temporary directory is removed, the other checkpoints are
  // untouched but for that, and the error says what was being written.
  std::string save(const TrainState& state, AdamW& optimizer);
  // Throws NoRoomError, naming bytes needed and free, when what a run of `saves` saves will hold at
  // once (those kept, the best, and the one being written) does not fit on the disk.
  void check_space(const AdamW& optimizer, std::int64_t saves) const;
  // Checkpoints that neither count as kept ones nor are removed: those that a resume rejected.
  void ignore(std::vector<std::string> names) { ignored_ = std::move(names); }
  // Removes what a killed run left behind (.tmp-*, .trash-*). Requires the run's lock.
  void remove_leftovers();
  // The same for a run that is over: takes its lock, but only if there is something to remove.
  void tidy_up();

 private:
  std::string write(const TrainState& state, AdamW& optimizer);
  std::vector<CheckpointCandidate> own_checkpoints() const;  // complete ones, newest first
  // Removes all but the newest `kept` and the best one; how many went.
  std::int64_t prune(const TrainState& state, std::int64_t kept);

  std::string directory_, run_id_;
  std::vector<std::string> ignored_;
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
  // Names of newer checkpoints in the same run that are not good.
  const std::vector<std::string>& rejected() const { return rejected_; }
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
  std::vector<std::string> rejected_;
};

// What the newest checkpoint with a good state says of the run's settings; its weights are not
// read.
struct SavedSettings {
  std::string directory;
  std::map<std::string, std::string> settings;  // of TrainState; empty in an older checkpoint
};
std::optional<SavedSettings> newest_settings(const std::string& out_dir);

// True when `out_dir` holds any checkpoint directory, good or not.
bool has_checkpoints(const std::string& out_dir);

// Weights from a run directory, a checkpoint directory, or a .safetensors file, for init_from. A
// notice says so where a checkpoint was trained with another tokenizer than `run`'s.
void load_initial_weights(const std::string& path, const std::vector<NamedTensor>& tensors,
                          const TrainState& run, Reporter& reporter);

}  // namespace duet
