// Loading: the newest good checkpoint, every byte of it verified before anything is used.
#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/file_error.h"
#include "runtime/file_system.h"
#include "runtime/memory_ops.h"
#include "runtime/nan_sign.h"
#include "runtime/safetensors.h"
#include "runtime/stop.h"
#include "train/checkpoint.h"
#include "train/checkpoint_files.h"
#include "train/foreign_weights.h"

namespace duet {
namespace {

constexpr std::int64_t kMaxStateBytes = 1 << 20;
constexpr std::size_t kListed = 10;  // differences named before only their count is given

// What training made is finite; second moments are sums of squares.
void check_moment(const SafetensorsFile& file, const std::string& name, bool of_squares) {
  const Tensor moment = file.load(name);
  visit_floating(moment.dtype(), "checkpoint", [&]<class T>(TypeTag<T>) {
    const T* data = moment.data<T>();
    for (std::int64_t i = 0; i < moment.numel(); ++i) {
      const auto x = static_cast<double>(data[i]);
      check(std::isfinite(x) && (x >= 0 || !of_squares), ErrorKind::file, file.path(), ": ", name,
            "[", i, "] is ", without_nan_sign(x), ", expected a finite number",
            of_squares ? " of 0 or more" : "");
    }
  });
}

void check_moments(const SafetensorsFile& model, const SafetensorsFile& optimizer) {
  for (const std::string& name : model.names()) {
    const SafetensorsEntry& weight = model.entry(name);
    for (const char* moment : {kFirstMoment, kSecondMoment}) {
      const SafetensorsEntry* entry = optimizer.find(name + moment);
      check(entry != nullptr, ErrorKind::file, optimizer.path(), ": tensor ", name, moment,
            " is missing");
      check(entry->shape == weight.shape && entry->stored_dtype == weight.stored_dtype,
            ErrorKind::file, optimizer.path(), ": ", name, moment, " is ", entry->stored_dtype, " ",
            entry->shape, ", the weight is ", weight.stored_dtype, " ", weight.shape);
    }
    check_moment(optimizer, name + kFirstMoment, /*of_squares=*/false);
    check_moment(optimizer, name + kSecondMoment, /*of_squares=*/true);
  }
  check(optimizer.names().size() == 2 * model.names().size(), ErrorKind::file, optimizer.path(),
        ": got ", optimizer.names().size(), " tensors, expected ", 2 * model.names().size());
}

// Weights and moments must say that they are of the state's step.
void check_step(const SafetensorsFile& file, const TrainState& state) {
  const auto found = file.metadata().find("step");
  const std::string step = found == file.metadata().end() ? "none" : found->second;
  check(step == std::to_string(state.step), ErrorKind::file, file.path(),
        ": the tensors are of step ", step, ", the state is of step ", state.step);
}

// Older versions kept one dt for each layer under coupling_sharing layer, where every head has its
// own by now: a file's [1], and its moments, stand for all of them.
bool is_dt_of_layer(const std::string& name, const Shape& stored) {
  return name.find("coupling.dt") != std::string::npos && stored == Shape{1};
}

void notice_dt_of_layer(const SafetensorsFile& file, std::int64_t heads, Reporter& reporter) {
  for (const std::string& name : file.names()) {
    if (heads == 1 || !is_dt_of_layer(name, file.entry(name).shape)) continue;
    return reporter.on_notice(concat(
        printable(file.path(), 4096), ": ", name, " is one dt for all heads of the layer, as ",
        "older versions of duet trained it; each of the ", heads, " heads starts from it"));
  }
}

const Manifest& manifest_of(const CheckpointCandidate& candidate) {
  if (candidate.fault != nullptr) std::rethrow_exception(candidate.fault);
  return *candidate.manifest;
}

TrainState read_state(const CheckpointCandidate& candidate) {
  const Manifest& manifest = manifest_of(candidate);
  verify_file(manifest, candidate.path, kStateFile);
  const std::string path = concat(candidate.path, "/", kStateFile);
  TrainState state = parse_state(file_system().read_file(path, kMaxStateBytes), path);
  check(state.step == manifest.step && state.run_id == manifest.run_id, ErrorKind::file, path,
        ": it is of step ", state.step, " of run ", printable(state.run_id),
        ", the manifest is of step ", manifest.step, " of run ", printable(manifest.run_id));
  return state;
}

// A checkpoint that cannot be read now is no damaged one: the run must not go back behind it.
[[noreturn]] void stop_at(const CheckpointCandidate& candidate, const Error& error) {
  if (error.kind() == ErrorKind::memory) throw Error(error);
  throw UnreadableError(error.kind(),
                        concat("checkpoint ", candidate.name, ": ", error.what(),
                               "; no older one is taken in its place: to use one, name its "
                               "directory, or move this one away"));
}

TrainState verify(const CheckpointCandidate& candidate, bool with_optimizer, Reporter& reporter) {
  const Manifest& manifest = manifest_of(candidate);
  const std::string& directory = candidate.path;
  const std::string moments = concat(directory, "/", kOptimizerFile);
  check(!with_optimizer || file_system().exists(moments), ErrorKind::file, directory,
        ": weights only, there is no ", kOptimizerFile,
        "; to start a new run from them, use --init_from ", directory);
  TrainState state = read_state(candidate);
  verify_file(manifest, directory, kModelFile);
  if (with_optimizer) verify_file(manifest, directory, kOptimizerFile);
  for (const std::string& name : file_system().list_directory(directory)) {
    if (name != kManifestFile && !manifest.files.contains(name)) {
      reporter.on_notice(concat(directory, "/", name, " is not in the manifest; ignored"));
    }
  }
  const SafetensorsFile model = SafetensorsFile::open(concat(directory, "/", kModelFile));
  check_step(model, state);
  notice_dt_of_layer(model, state.model.kv_heads(), reporter);
  if (with_optimizer) {
    const SafetensorsFile optimizer = SafetensorsFile::open(moments);
    check_step(optimizer, state);
    check_moments(model, optimizer);
  }
  return state;
}

// Throws one Error(file) that lists the differences, if there are any.
void throw_differences(const std::string& path, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  std::string text = concat(path, ": ", lines.size(), " tensors do not fit the model:");
  for (std::size_t i = 0; i < std::min(lines.size(), kListed); ++i) text += "\n  " + lines[i];
  if (lines.size() > kListed) text += concat("\n  and ", lines.size() - kListed, " more");
  throw Error(ErrorKind::file, text + "\nnothing was loaded; give the model the file's shape");
}

// Reads every wanted tensor, once all names and shapes are known to fit.
void load_tensors(const SafetensorsFile& file,
                  const std::vector<std::pair<std::string, Tensor>>& wanted, const char* owner) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : wanted) {
    const SafetensorsEntry* entry = file.find(name);
    if (entry == nullptr) {
      lines.push_back(concat(name, ": missing in the file, the model wants ", value.shape()));
    } else if (entry->shape != value.shape() &&
               !(is_dt_of_layer(name, entry->shape) && value.ndim() == 1)) {
      lines.push_back(concat(name, ": the file has ", entry->stored_dtype, " ", entry->shape, ", ",
                             owner, " wants ", value.dtype(), " ", value.shape()));
    } else if (!entry->dtype || !is_floating(*entry->dtype)) {
      lines.push_back(concat(name, ": the file has ", entry->stored_dtype, ", ", owner, " wants ",
                             value.dtype()));
    }
  }
  for (const std::string& name : file.names()) {
    const auto same = [&](const auto& pair) { return pair.first == name; };
    if (std::none_of(wanted.begin(), wanted.end(), same)) {
      lines.push_back(concat(printable(name), ": extra in the file, the model has none"));
    }
  }
  throw_differences(file.path(), lines);
  for (const auto& [name, value] : wanted) {
    check_stop();
    Tensor target = value;
    if (const Shape& stored = file.entry(name).shape; stored != value.shape()) {
      Tensor dt = Tensor::empty(stored, value.dtype());
      file.read_into(name, dt);
      copy(target, dt.expand_view(value.shape()));
      continue;
    }
    file.read_into(name, target);
  }
}

void load_weights_from(const std::string& path, const std::vector<NamedTensor>& tensors) {
  std::vector<std::pair<std::string, Tensor>> wanted;
  for (const NamedTensor& t : tensors) wanted.emplace_back(t.name, t.value);
  const SafetensorsFile file = SafetensorsFile::open(path);
  refuse_foreign(file);
  load_tensors(file, wanted, "the model");
}

// A directory without a manifest that is a checkpoint all the same, by its name or its files.
void refuse_damaged(const std::string& path) {
  const std::string model = concat(path, "/", kModelFile);
  if (file_system().exists(model)) refuse_foreign(SafetensorsFile::open(model));
  const std::string name = path.substr(0, path.find_last_not_of('/') + 1);
  bool damaged = name.substr(name.find_last_of('/') + 1).rfind(kCheckpointPrefix, 0) == 0;
  for (const char* file : {kModelFile, kOptimizerFile, kStateFile}) {
    damaged = damaged || file_system().exists(concat(path, "/", file));
  }
  if (damaged) read_manifest(path);  // says that it is missing
}

}  // namespace

CheckpointReader CheckpointReader::open(const std::string& path, Reporter& reporter,
                                        bool with_optimizer) {
  FileSystem& files = file_system();
  check(files.exists(path), ErrorKind::file, path,
        ": there is nothing of this name; expected a run "
        "directory or a checkpoint");
  check(files.is_directory(path), ErrorKind::file, path,
        ": not a directory; expected a run directory or a checkpoint");
  if (files.exists(concat(path, "/", kManifestFile))) {
    CheckpointCandidate one{path, path, 0, 1, read_manifest(path), nullptr};
    return CheckpointReader(path, verify(one, with_optimizer, reporter));
  }
  const std::string inside = path + "/checkpoints";
  const auto candidates = list_checkpoints(files.is_directory(inside) ? inside : path);
  if (candidates.empty()) refuse_damaged(path);
  check(!candidates.empty(), ErrorKind::file, path,
        ": there is no checkpoint; expected a run directory with checkpoints/step_*, or one of "
        "those (train writes them)");
  std::vector<std::string> rejected;
  for (const CheckpointCandidate& candidate : candidates) {
    try {
      CheckpointReader reader(candidate.path, verify(candidate, with_optimizer, reporter));
      reader.rejected_ = std::move(rejected);
      return reader;
    } catch (const Error& e) {
      if (is_unreadable(e)) stop_at(candidate, e);
      rejected.push_back(candidate.name);
      reporter.on_notice(concat("checkpoint ", candidate.name, " is not usable: ", e.what()));
    }
  }
  throw Error(ErrorKind::file, concat(path, ": none of its ", candidates.size(),
                                      " checkpoints is good; the reasons are above"));
}

std::unique_ptr<Tokenizer> CheckpointReader::tokenizer() const {
  std::unique_ptr<Tokenizer> found;
  for (const char* place : {"/tokenizer.json", "/../../tokenizer.json"}) {
    if (file_system().exists(directory_ + place)) {
      found = open_tokenizer(directory_ + place);
      break;
    }
  }
  if (found == nullptr && state_.tokenizer == "byte") found = make_byte_tokenizer();
  check(found != nullptr, ErrorKind::file, directory_,
        ": its tokenizer.json is missing; expected "
        "it in the run's directory");
  check(found->hash() == state_.tokenizer_hash, ErrorKind::file, directory_,
        ": the tokenizer is not the one of the run: expected hash ", state_.tokenizer_hash,
        ", found ", found->hash());
  return found;
}

void CheckpointReader::load_weights(const std::vector<NamedTensor>& tensors) const {
  load_weights_from(concat(directory_, "/", kModelFile), tensors);
}

void CheckpointReader::load_optimizer(AdamW& optimizer) const {
  std::vector<std::pair<std::string, Tensor>> wanted;
  for (std::size_t i = 0; i < optimizer.tensors().size(); ++i) {
    const std::string& name = optimizer.tensors()[i].name;
    wanted.emplace_back(name + kFirstMoment, optimizer.first_moment(i));
    wanted.emplace_back(name + kSecondMoment, optimizer.second_moment(i));
  }
  load_tensors(SafetensorsFile::open(concat(directory_, "/", kOptimizerFile)), wanted,
               "the optimizer");
  optimizer.set_steps(state_.optimizer_steps);
}

std::optional<SavedSettings> newest_settings(const std::string& out_dir) {
  for (const CheckpointCandidate& candidate : list_checkpoints(out_dir + "/checkpoints")) {
    try {
      return SavedSettings{candidate.path, read_state(candidate).settings};
    } catch (const Error& e) {
      if (is_unreadable(e)) stop_at(candidate, e);  // a damaged one is named when the run goes on
    }
  }
  return std::nullopt;
}

bool has_checkpoints(const std::string& out_dir) {
  return !list_checkpoints(out_dir + "/checkpoints").empty();
}

void load_initial_weights(const std::string& path, const std::vector<NamedTensor>& tensors,
                          const TrainState& run, Reporter& reporter) {
  if (file_system().type(path) == FileType::regular) {
    load_weights_from(path, tensors);
    const auto dt = std::find_if(tensors.begin(), tensors.end(), [](const NamedTensor& t) {
      return t.name.ends_with("coupling.dt");
    });
    if (dt != tensors.end()) {
      notice_dt_of_layer(SafetensorsFile::open(path), dt->value.numel(), reporter);
    }
    return;
  }
  const CheckpointReader checkpoint = CheckpointReader::open(path, reporter);
  checkpoint.load_weights(tensors);
  const TrainState& then = checkpoint.state();
  if (then.tokenizer_hash != run.tokenizer_hash) {
    reporter.on_notice(concat("init_from ", printable(path, 4096),
                              " was trained with the tokenizer ", printable(then.tokenizer),
                              ", this run has ", run.tokenizer,
                              ": the same ids mean other things"));
  }
}

}  // namespace duet
