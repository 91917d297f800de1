// Names inside a checkpoint and inside out_dir/checkpoints, and the list of what is there.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "train/manifest.h"

namespace duet {

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optim.safetensors";
inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kFirstMoment = ".m";  // after the parameter's name
inline constexpr const char* kSecondMoment = ".v";
inline constexpr const char* kCheckpointPrefix = "step_";
inline constexpr const char* kTemporaryPrefix = ".tmp-";
inline constexpr const char* kTrashPrefix = ".trash-";

std::string checkpoint_name(std::int64_t step);  // "step_00000200"

struct CheckpointCandidate {
  std::string name, path;
  std::int64_t step = 0;             // of the manifest, else of the name
  std::int64_t repeat = 1;           // 2 for "step_00000200-2"
  std::optional<Manifest> manifest;  // if it can be read
  std::exception_ptr fault;          // why it cannot
};

// Directories (not symlinks) named like a checkpoint, newest first by step, as numbers.
std::vector<CheckpointCandidate> list_checkpoints(const std::string& directory);
// Every listed file is there with its size; contents are not read.
bool files_present(const CheckpointCandidate& candidate);

}  // namespace duet
