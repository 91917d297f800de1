// Saving and pruning. The order of the steps is the whole point; tests/train/crash_test.cpp cuts it
// at every one of them.
#include <algorithm>
#include <utility>

#include "runtime/file_system.h"
#include "runtime/hash.h"
#include "runtime/safetensors.h"
#include "train/checkpoint.h"
#include "train/checkpoint_files.h"
#include "train/manifest.h"

namespace duet {
namespace {

constexpr std::int64_t kNeverFewer = 2;  // complete checkpoints, whatever `keep` says

WrittenFile write_text(const std::string& path, const std::string& text) {
  FileWriter out = file_system().create(path);
  out.write(text);
  out.sync();
  out.close();
  return {text.size(), hash_bytes(text)};
}

// Every file of the checkpoint, synced, into an existing empty directory.
void write_files(const std::string& directory, const TrainState& state, AdamW& optimizer) {
  NamedTensors weights;
  NamedTensors moments;
  for (std::size_t i = 0; i < optimizer.tensors().size(); ++i) {
    const NamedTensor& t = optimizer.tensors()[i];
    weights.emplace_back(t.name, t.value);
    moments.emplace_back(t.name + kFirstMoment, optimizer.first_moment(i));
    moments.emplace_back(t.name + kSecondMoment, optimizer.second_moment(i));
  }
  const Metadata metadata = {{"step", std::to_string(state.step)}, {"run_id", state.run_id}};
  Manifest manifest{state.step, state.run_id, {}};
  const auto path = [&](const char* name) { return concat(directory, "/", name); };
  manifest.files[kModelFile] = write_safetensors(path(kModelFile), weights, metadata);
  manifest.files[kOptimizerFile] = write_safetensors(path(kOptimizerFile), moments, metadata);
  manifest.files[kStateFile] = write_text(path(kStateFile), to_json(state));
  write_text(path(kManifestFile), to_json(manifest));
  file_system().sync_directory(directory);
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::string directory, std::string run_id, std::int64_t keep,
                                   Reporter& reporter)
    : directory_(std::move(directory)),
      run_id_(std::move(run_id)),
      keep_(keep),
      reporter_(reporter) {
  file_system().make_directories(directory_);
}

void CheckpointWriter::check_space(const AdamW& optimizer) const {
  std::int64_t needed = 1 << 16;  // the two JSON files and the headers
  for (const NamedTensor& t : optimizer.tensors()) {
    needed += 3 * static_cast<std::int64_t>(t.value.nbytes());
  }
  needed += needed / 10;
  const std::int64_t free = file_system().free_space(directory_);
  check(free >= needed, ErrorKind::io, directory_, ": not enough room for a checkpoint: got ", free,
        " bytes free, expected ", needed, "; free some, or choose another out_dir");
}

std::string CheckpointWriter::save(const TrainState& state, AdamW& optimizer) {
  FileSystem& files = file_system();
  const std::string bad = first_non_finite(optimizer.tensors());
  check(bad.empty(), ErrorKind::non_finite, "checkpoint: ", bad,
        " holds NaN or infinity after step ", state.step, "; it was not saved");
  check_space(optimizer);

  std::string name = checkpoint_name(state.step);
  for (int again = 2; files.type(directory_ + "/" + name) != FileType::missing; ++again) {
    name = concat(checkpoint_name(state.step), "-", again);
  }
  const std::string temporary = concat(directory_, "/", kTemporaryPrefix, name, "-", run_id_);
  std::string final_path = concat(directory_, "/", name);
  try {
    if (files.type(temporary) == FileType::directory) files.remove_tree(temporary);
    files.make_directory(temporary);
    write_files(temporary, state, optimizer);
    files.rename(temporary, final_path);
  } catch (const std::exception&) {
    try {
      if (files.type(temporary) == FileType::directory) files.remove_tree(temporary);
    } catch (const std::exception&) {
      // The next run removes it; what failed first is what the user must read.
    }
    throw;
  }
  files.sync_directory(directory_);
  reporter_.on_checkpoint(state.step, final_path);
  prune(state);
  return final_path;
}

void CheckpointWriter::prune(const TrainState& state) {
  FileSystem& files = file_system();
  std::vector<CheckpointCandidate> own;
  for (CheckpointCandidate& c : list_checkpoints(directory_)) {
    // A higher step than the one just saved is a stale one that the run went back behind.
    if (c.manifest && c.manifest->run_id == run_id_ && c.step <= state.step &&
        std::find(ignored_.begin(), ignored_.end(), c.name) == ignored_.end() && files_present(c)) {
      own.push_back(std::move(c));
    }
  }
  const auto kept = static_cast<std::size_t>(std::max(keep_, kNeverFewer));
  for (std::size_t i = kept; i < own.size(); ++i) {  // newest first
    if (own[i].step == state.best_step) continue;
    const std::string trash = concat(directory_, "/", kTrashPrefix, own[i].name, "-", run_id_);
    try {
      files.rename(own[i].path, trash);
      files.remove_tree(trash);
    } catch (const Error& e) {
      reporter_.on_notice(concat("could not remove old checkpoint ", own[i].path, ": ", e.what()));
    }
  }
}

void CheckpointWriter::remove_leftovers() {
  FileSystem& files = file_system();
  for (const std::string& name : files.list_directory(directory_)) {
    const bool ours = name.rfind(concat(kTemporaryPrefix, kCheckpointPrefix), 0) == 0 ||
                      name.rfind(concat(kTrashPrefix, kCheckpointPrefix), 0) == 0;
    const std::string path = concat(directory_, "/", name);
    if (!ours || files.type(path) != FileType::directory) continue;
    try {
      files.remove_tree(path);
      reporter_.on_notice(concat("removed ", path, ", left by a run that was interrupted"));
    } catch (const Error& e) {
      reporter_.on_notice(concat("could not remove ", path, ": ", e.what()));
    }
  }
}

}  // namespace duet
