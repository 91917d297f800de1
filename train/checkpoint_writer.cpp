// Saving and pruning. The order of the steps is the whole point; tests/train/crash_test.cpp cuts it
// at every one of them.
#include <algorithm>
#include <utility>

#include "runtime/file_error.h"
#include "runtime/file_system.h"
#include "runtime/hash.h"
#include "runtime/safetensors.h"
#include "train/checkpoint.h"
#include "train/checkpoint_files.h"
#include "train/manifest.h"
#include "train/run_directory.h"

namespace duet {
namespace {

constexpr std::int64_t kNeverFewer = 2;  // complete checkpoints, whatever `keep` says

// A file that `write` fills, on the disk at return.
template <class F>
WrittenFile write_file(const FileSystem& directory, const char* name, F&& write) {
  FileWriter out = directory.create(name);
  WrittenFile written = write(out);
  out.sync();
  out.close();
  return written;
}

WrittenFile write_text(const FileSystem& directory, const char* name, const std::string& text) {
  return write_file(directory, name, [&](FileWriter& out) -> WrittenFile {
    out.write(text);
    return {text.size(), hash_bytes(text)};
  });
}

// Every file of the checkpoint, synced, into an existing empty directory.
void write_files(const FileSystem& directory, const TrainState& state, AdamW& optimizer) {
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
  const auto write_tensors = [&](const char* name, const NamedTensors& tensors) {
    manifest.files[name] = write_file(directory, name, [&](FileWriter& out) {
      return write_safetensors(out, tensors, metadata);
    });
  };
  write_tensors(kModelFile, weights);
  write_tensors(kOptimizerFile, moments);
  manifest.files[kStateFile] = write_text(directory, kStateFile, to_json(state));
  write_text(directory, kManifestFile, to_json(manifest));
  directory.sync_directory(".");
}

bool is_leftover(const std::string& name) {
  return name.rfind(concat(kTemporaryPrefix, kCheckpointPrefix), 0) == 0 ||
         name.rfind(concat(kTrashPrefix, kCheckpointPrefix), 0) == 0;
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

void CheckpointWriter::check_space(const AdamW& optimizer, std::int64_t saves) const {
  std::int64_t one = 1 << 16;  // the two JSON files and the headers
  for (const NamedTensor& t : optimizer.tensors()) {
    one += 3 * static_cast<std::int64_t>(t.value.nbytes());
  }
  one += one / 10;
  const auto held = std::ssize(own_checkpoints());
  const std::int64_t most = std::max(keep_, kNeverFewer) + 2;  // the best, and a temporary one
  const std::int64_t more = std::max<std::int64_t>(1, std::min(saves, most - held));
  const std::int64_t free = file_system().free_space(directory_);
  if (free / more >= one) return;
  throw NoRoomError(
      ErrorKind::io,
      concat(directory_, ": not enough room for ",
             more == 1 ? "a checkpoint" : concat(more, " checkpoints, the most at once"), ": got ",
             free, " bytes free, expected ", more == 1 ? "" : concat(more, " x "), one,
             "; free some, ", more > 1 && keep_ > kNeverFewer ? "lower keep, " : "",
             "or choose another out_dir"));
}

std::string CheckpointWriter::save(const TrainState& state, AdamW& optimizer) {
  const std::string bad = first_non_finite(optimizer.tensors());
  check(bad.empty(), ErrorKind::non_finite, "checkpoint: ", bad,
        " holds NaN or infinity after step ", state.step, "; it was not saved");
  std::string saved;
  try {
    saved = write(state, optimizer);
  } catch (const NoRoomError&) {
    if (prune(state, keep_ - 1) == 0) throw;
    saved = write(state, optimizer);
  }
  file_system().sync_directory(directory_);
  reporter_.on_checkpoint(state.step, saved);
  prune(state, keep_);
  return saved;
}

std::string CheckpointWriter::write(const TrainState& state, AdamW& optimizer) {
  check_space(optimizer, /*saves=*/1);
  const FileSystem files = file_system().directory(directory_);
  std::string name = checkpoint_name(state.step);
  for (int again = 2; files.type(name) != FileType::missing; ++again) {
    name = concat(checkpoint_name(state.step), "-", again);
  }
  const std::string temporary = concat(kTemporaryPrefix, name, "-", random_digits());
  std::string final_path = concat(directory_, "/", name);
  files.make_directory(temporary);
  try {
    write_files(files.directory(temporary), state, optimizer);
    reporter_.on_save();
    files.rename(temporary, name);
  } catch (const std::exception&) {
    try {
      files.remove_tree(temporary);
    } catch (const std::exception&) {
      // The next run removes it; what failed first is what the user must read.
    }
    throw;
  }
  return final_path;
}

std::vector<CheckpointCandidate> CheckpointWriter::own_checkpoints() const {
  std::vector<CheckpointCandidate> own = list_checkpoints(directory_);
  std::erase_if(own, [&](const CheckpointCandidate& c) {
    return !c.manifest || c.manifest->run_id != run_id_ || !files_present(c) ||
           std::find(ignored_.begin(), ignored_.end(), c.name) != ignored_.end();
  });
  return own;
}

// What fails here is told, and tried again after the next save: the checkpoint is safe.
std::int64_t CheckpointWriter::prune(const TrainState& state, std::int64_t kept) {
  std::int64_t removed = 0, seen = 0;
  try {
    const FileSystem files = file_system().directory(directory_);
    for (const CheckpointCandidate& c : own_checkpoints()) {
      // A higher step than the one just saved is a stale one that the run went back behind.
      if (c.step > state.step || ++seen <= std::max(kept, kNeverFewer) ||
          c.step == state.best_step) {
        continue;
      }
      const std::string trash = concat(kTrashPrefix, c.name, "-", random_digits());
      try {
        files.rename(c.name, trash);
        files.remove_tree(trash);
        ++removed;
      } catch (const Error& e) {
        reporter_.on_notice(concat("could not remove old checkpoint ", c.path, ": ", e.what()));
      }
    }
  } catch (const Error& e) {
    reporter_.on_notice(concat("could not remove old checkpoints: ", e.what()));
  }
  return removed;
}

void CheckpointWriter::tidy_up() try {
  const std::vector<std::string> names = file_system().list_directory(directory_);
  if (std::none_of(names.begin(), names.end(), is_leftover)) return;
  RunDirectory run(directory_.substr(0, directory_.rfind('/')));
  run.keep();
  remove_leftovers();
} catch (const Error& e) {
  reporter_.on_notice(concat("could not tidy up ", directory_, ": ", e.what()));
}

void CheckpointWriter::remove_leftovers() try {
  const FileSystem files = file_system().directory(directory_);
  for (const std::string& name : files.list_directory(".")) {
    if (!is_leftover(name) || files.type(name) != FileType::directory) continue;
    const std::string path = concat(directory_, "/", name);
    try {
      files.remove_tree(name);
      reporter_.on_notice(concat("removed ", path, ", left by a run that was interrupted"));
    } catch (const Error& e) {
      reporter_.on_notice(concat("could not remove ", path, ": ", e.what()));
    }
  }
} catch (const Error& e) {
  reporter_.on_notice(concat("could not look for leftovers: ", e.what()));
}

}  // namespace duet
