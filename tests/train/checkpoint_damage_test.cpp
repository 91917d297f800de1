// Damaged, foreign and inconsistent checkpoints: each is refused by name and reason, and a run
// directory falls back to the one before.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/hash.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/same_text.h"
#include "tests/train/checkpoint_support.h"
#include "train/checkpoint_files.h"

namespace duet::test {
namespace {

using Json = nlohmann::json;

void replace_file(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);
  write_bytes(path, bytes);
}

void change_json(const std::string& path, const std::function<void(Json&)>& change) {
  Json tree = Json::parse(read_bytes(path));
  change(tree);
  replace_file(path, tree.dump());
}

// Writes the manifest anew for the files as they are now: gets a fault past the hashes.
void seal(const std::string& directory) {
  Manifest manifest = read_manifest(directory);
  for (auto& [name, file] : manifest.files) {
    const std::string bytes = read_bytes(directory + "/" + name);
    file = {bytes.size(), hash_bytes(bytes)};
  }
  replace_file(directory + "/manifest.json", to_json(manifest));
}

void change_state(const std::string& directory, const std::function<void(Json&)>& change) {
  change_json(directory + "/state.json", change);
  seal(directory);
}

// Rewrites the moments, after `change` had its way with them.
void change_moments(const std::string& directory,
                    const std::function<void(std::map<std::string, Tensor>&)>& change) {
  const std::string path = directory + "/optim.safetensors";
  const auto file = SafetensorsFile::open(path);
  std::map<std::string, Tensor> tensors;
  for (const std::string& name : file.names()) tensors[name] = file.load(name);
  change(tensors);
  std::filesystem::remove(path);
  write_safetensors(path, NamedTensors(tensors.begin(), tensors.end()), file.metadata());
  seal(directory);
}

struct Row {
  const char* name;
  std::function<void(const std::string& directory)> damage;
  const char* reason;
};

const std::vector<Row>& rows() {
  using Tensors = std::map<std::string, Tensor>;
  static const std::vector<Row> table = {
      {"missing_m", [](auto& d) { change_moments(d, [](Tensors& t) { t.erase("weight.m"); }); },
       "tensor weight.m is missing"},
      {"missing_v", [](auto& d) { change_moments(d, [](Tensors& t) { t.erase("bias.v"); }); },
       "tensor bias.v is missing"},
      {"transposed_shape",
       [](auto& d) {
         change_moments(d, [](Tensors& t) { t["weight.v"] = t["weight.v"].reshape_view({3, 2}); });
       },
       "weight.v is F32 [3, 2], the weight is F32 [2, 3]"},
      {"extra_moment",
       [](auto& d) {
         change_moments(d, [](Tensors& t) { t["x.m"] = Tensor::zeros({1}, DType::f32); });
       },
       "got 5 tensors, expected 4"},
      {"negative_v",
       [](auto& d) {
         change_moments(d, [](Tensors& t) { t["bias.v"].mutable_data<float>()[1] = -1; });
       },
       "bias.v[1] is -1, expected a finite number of 0 or more"},
      {"nan_v",
       [](auto& d) {
         change_moments(d, [](Tensors& t) { t["weight.v"].mutable_data<float>()[5] = NAN; });
       },
       "weight.v[5] is nan"},
      {"nan_m",
       [](auto& d) {
         change_moments(d, [](Tensors& t) { t["weight.m"].mutable_data<float>()[5] = -NAN; });
       },
       "weight.m[5] is nan, expected a finite number"},
      {"infinite_m",
       [](auto& d) {
         change_moments(d, [](Tensors& t) { t["bias.m"].mutable_data<float>()[2] = -INFINITY; });
       },
       "bias.m[2] is -inf, expected a finite number"},
      {"step_negative", [](auto& d) { change_state(d, [](Json& s) { s["step"] = -1; }); },
       "key step: expected an integer from 0"},
      {"step_2_to_63",
       [](auto& d) { change_state(d, [](Json& s) { s["step"] = 9223372036854775808U; }); },
       "key step: expected an integer from 0"},
      {"step_of_another_state", [](auto& d) { change_state(d, [](Json& s) { s["step"] = 3; }); },
       "it is of step 3"},
      {"optimizer_ahead_of_step",
       [](auto& d) { change_state(d, [](Json& s) { s["optimizer"]["steps"] = 99; }); },
       "key optimizer.steps: expected an integer from 0 to 2, found 99"},
      {"beta1_one",
       [](auto& d) { change_state(d, [](Json& s) { s["optimizer"]["beta1"] = 1.0; }); },
       "key optimizer.beta1"},
      {"beta2_negative",
       [](auto& d) { change_state(d, [](Json& s) { s["optimizer"]["beta2"] = -0.1; }); },
       "key optimizer.beta2"},
      {"another_optimizer",
       [](auto& d) { change_state(d, [](Json& s) { s["optimizer"]["name"] = "lion"; }); },
       "expected \"adamw\""},
      {"loader_position",
       [](auto& d) { change_state(d, [](Json& s) { s["loader"]["samples"] = -4; }); },
       "key loader.samples"},
      {"seed_not_a_number", [](auto& d) { change_state(d, [](Json& s) { s["seed"] = "x"; }); },
       "key seed: expected an integer of 0 or more, found \"x\""},
      {"missing_key", [](auto& d) { change_state(d, [](Json& s) { s.erase("tokens"); }); },
       "key tokens is missing"},
      {"model_without_width",
       [](auto& d) { change_state(d, [](Json& s) { s["model"]["n_embd"] = 0; }); },
       "its model does not fit together: n_embd"},
      {"unknown_family",
       [](auto& d) { change_state(d, [](Json& s) { s["model"]["family"] = "rnn"; }); },
       "expected llama | gpt2, found \"rnn\""},
      {"state_of_a_run_named_as_a_path",
       [](auto& d) { change_state(d, [](Json& s) { s["run_id"] = "x/docs"; }); },
       "key run_id: expected 1 to 64 letters, digits, - and _, found \"x/docs\""},
      {"manifest_of_a_run_named_as_a_path",
       [](auto& d) {
         Manifest manifest = read_manifest(d);
         manifest.run_id = "../..";
         replace_file(d + "/manifest.json", to_json(manifest));
       },
       "key run_id: expected 1 to 64 letters, digits, - and _, found \"../..\""},
      {"manifest_of_a_file_named_as_a_path",
       [](auto& d) {
         Manifest manifest = read_manifest(d);
         manifest.files["../state.json"] = manifest.files["state.json"];
         replace_file(d + "/manifest.json", to_json(manifest));
       },
       "\"../state.json\" is not the name of a file in the checkpoint"},
      {"settings_are_no_texts",
       [](auto& d) { change_state(d, [](Json& s) {
                       s["settings"] = {{"batch_size", 2}};
                     }); },
       "key settings.batch_size: expected a string"},
      {"state_is_a_list",
       [](auto& d) {
         replace_file(d + "/state.json", "[]");
         seal(d);
       },
       "expected an object"},
      {"state_cut",
       [](auto& d) {
         replace_file(d + "/state.json", "{\"step\":");
         seal(d);
       },
       "not JSON"},
      {"manifest_changed",
       [](auto& d) { change_json(d + "/manifest.json", [](Json& m) { m["step"] = 4; }); },
       "its own hash is wrong"},
      {"manifest_empty", [](auto& d) { replace_file(d + "/manifest.json", ""); }, "not JSON"},
      {"manifest_gone", [](auto& d) { std::filesystem::remove(d + "/manifest.json"); },
       "manifest.json"},
      {"model_gone", [](auto& d) { std::filesystem::remove(d + "/model.safetensors"); },
       "the manifest lists it, but there is no such file"},
      {"weights_only", [](auto& d) { std::filesystem::remove(d + "/optim.safetensors"); },
       "weights only, there is no optim.safetensors; to start a new run from them, use "
       "--init_from"},
      {"model_of_another_step",
       [](auto& d) {
         const std::string other = d.substr(0, d.size() - 1) + "1";
         replace_file(d + "/model.safetensors", read_bytes(other + "/model.safetensors"));
         seal(d);
       },
       "the tensors are of step 1, the state is of step 2"},
      {"model_is_a_link",
       [](auto& d) {
         std::filesystem::rename(d + "/model.safetensors", d + "/../real");
         std::filesystem::create_symlink("../real", d + "/model.safetensors");
       },
       "the manifest lists it, but there is no such file"},
      {"path_in_manifest",
       [](auto& d) {
         Manifest m = read_manifest(d);
         m.files["../step_00000001/state.json"] = m.files["state.json"];
         replace_file(d + "/manifest.json", to_json(m));
       },
       "is not the name of a file in the checkpoint"},
  };
  return table;
}

// Two checkpoints, of steps 1 and 2.
struct TwoSteps {
  TempDirectory dir;
  std::string newest;

  TwoSteps() {
    Recorder reporter;
    CheckpointWriter writer = writer_for(dir, reporter);
    ToyRun run;
    run.save(writer, 1);
    newest = run.save(writer, 2);
  }
};

void expect_fallback(const TwoSteps& run, const std::string& reason) {
  Recorder reporter;
  const auto before = snapshot(run.dir.path());
  const auto reader = CheckpointReader::open(run.dir.file("run"), reporter, true);
  EXPECT_EQ(reader.state().step, 1);
  ToyRun loaded;
  reader.load_weights(loaded.parameters.named);
  reader.load_optimizer(*loaded.optimizer);
  EXPECT_TRUE(loaded.holds(1));
  expect_in("checkpoint step_00000002 is not usable: ", reporter.notices);
  expect_in(reason, reporter.notices);
  EXPECT_EQ(reader.rejected(), std::vector<std::string>{"step_00000002"});
  EXPECT_TRUE(same_files(snapshot(run.dir.path()), before));
}

TEST(CheckpointDamage, EachIsRefusedAndTheOneBeforeIsTaken) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    const TwoSteps run;
    row.damage(run.newest);
    expect_fallback(run, row.reason);
    if (std::filesystem::exists(run.newest + "/manifest.json")) {
      Recorder reporter;
      expect_in(row.reason, error_of(ErrorKind::file,
                                     [&] { CheckpointReader::open(run.newest, reporter, true); }));
    }
  }
}

// No older checkpoint is taken for one that this program, this user or this disk cannot read now.
void expect_stop(const TwoSteps& run, ErrorKind kind, const std::string& reason) {
  const auto before = snapshot(run.dir.path());
  Recorder reporter;
  const std::string text =
      error_of(kind, [&] { CheckpointReader::open(run.dir.file("run"), reporter, true); });
  expect_in("checkpoint step_00000002: ", text);
  expect_in(reason, text);
  expect_in("; no older one is taken in its place", text);
  EXPECT_EQ(reporter.notices, "");
  EXPECT_TRUE(same_files(snapshot(run.dir.path()), before));
}

TEST(CheckpointDamage, ANewerFormatIsNoDamage) {
  const auto newer = [](Json& tree) { tree["format_version"] = 7; };
  const char* reason =
      "cannot be read by this version of duet: format version 7 is newer than this program's 1; "
      "use a newer duet";
  const TwoSteps state, manifest;
  change_state(state.newest, newer);
  expect_stop(state, ErrorKind::file, reason);
  change_json(manifest.newest + "/manifest.json", newer);
  expect_stop(manifest, ErrorKind::file, reason);
}

// Fails at the n-th call of its kind.
class FailingReads final : public SystemCalls {
 public:
  FailingReads(int open_error, int read_error, int at)
      : open_error_(open_error), read_error_(read_error), at_(at) {}
  int openat(int directory, const char* path, int flags, mode_t mode) override {
    const bool fails = open_error_ != 0 && (flags & O_DIRECTORY) == 0 && --at_ == 0;
    errno = open_error_;
    return fails ? -1 : SystemCalls::openat(directory, path, flags, mode);
  }
  ssize_t pread(int fd, void* data, std::size_t bytes, off_t offset) override {
    const bool fails = read_error_ != 0 && --at_ == 0;
    errno = read_error_;
    return fails ? -1 : SystemCalls::pread(fd, data, bytes, offset);
  }

 private:
  int open_error_, read_error_, at_;
};

TEST(CheckpointDamage, AFailingDiskIsNoDamage) {
  const struct {
    int open_error, read_error;
    ErrorKind kind;
  } rows[] = {{0, EIO, ErrorKind::io},
              {EIO, 0, ErrorKind::io},
              {EMFILE, 0, ErrorKind::io},
              {EACCES, 0, ErrorKind::file}};
  for (const auto& row : rows) {
    const int error = row.open_error + row.read_error;
    for (const int at : {1, 2, 3, 4}) {  // manifests first, the newest's state, its weights
      SCOPED_TRACE(concat("errno ", error, " at call ", at));
      const TwoSteps run;
      FailingReads calls(row.open_error, row.read_error, at == 1 ? 2 : at + 1);
      FileSystem files(calls);
      const FileSystemOverride use(files);
      expect_stop(run, row.kind, concat("(errno ", error, ")"));
    }
  }
}

TEST(CheckpointDamage, EveryFlippedByteIsFound) {
  const TwoSteps run;
  for (const std::string& name : entries(run.newest)) {
    const std::string path = run.newest + "/" + name;
    const std::string good = read_bytes(path);
    for (std::size_t at = 0; at < good.size(); at += good.size() / 23 + 1) {
      SCOPED_TRACE(concat(name, " byte ", at));
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x10);
      write_bytes(path, bad);
      Recorder reporter;
      EXPECT_EQ(CheckpointReader::open(run.dir.file("run"), reporter, true).state().step, 1);
    }
    write_bytes(path, good);
  }
}

TEST(CheckpointDamage, TruncatedAndZeroedFilesAreFound) {
  const TwoSteps run;
  for (const std::string& name : entries(run.newest)) {
    const std::string path = run.newest + "/" + name;
    const std::string good = read_bytes(path);
    for (const std::string& bad : {good.substr(0, good.size() - 2), good.substr(0, good.size() / 2),
                                   std::string(), std::string(good.size(), '\0'), good + "x"}) {
      SCOPED_TRACE(concat(name, ", ", bad.size(), " bytes"));
      write_bytes(path, bad);
      expect_fallback(run, name);
    }
    write_bytes(path, good);
  }
}

TEST(CheckpointDamage, WithoutAGoodOneItSaysSo) {
  const TwoSteps run;
  Recorder reporter;
  for (const char* name : {"step_00000001", "step_00000002"}) {
    std::filesystem::remove(concat(run.dir.file("run/checkpoints/"), name, "/state.json"));
  }
  expect_in("none of its 2 checkpoints is good", error_of(ErrorKind::file, [&] {
              CheckpointReader::open(run.dir.file("run"), reporter);
            }));
  expect_in("step_00000001 is not usable", reporter.notices);
}

TEST(CheckpointDamage, AnExtraFileIsNamedAndIgnored) {
  const TwoSteps run;
  write_bytes(run.newest + "/notes.txt", "mine");
  Recorder reporter;
  EXPECT_EQ(CheckpointReader::open(run.dir.file("run"), reporter, true).state().step, 2);
  expect_in("notes.txt is not in the manifest; ignored", reporter.notices);
}

// Evaluation and generation need no moments.
TEST(CheckpointDamage, WeightsOnlyServesWhoNeedsNoMoments) {
  const TwoSteps run;
  std::filesystem::remove(run.newest + "/optim.safetensors");
  Recorder reporter;
  EXPECT_EQ(CheckpointReader::open(run.dir.file("run"), reporter).state().step, 2);
}

}  // namespace
}  // namespace duet::test
