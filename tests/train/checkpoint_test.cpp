// Saving, pruning and loading checkpoints when nothing goes wrong, and what a load refuses.
#include "train/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "runtime/file_system.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/same_text.h"
#include "tests/train/checkpoint_support.h"

namespace duet::test {
namespace {

using Names = std::vector<std::string>;

TEST(Checkpoint, ComesBackBitForBit) {
  const TempDirectory dir;
  Recorder reporter;
  CheckpointWriter writer = writer_for(dir, reporter);
  ToyRun run;
  EXPECT_EQ(run.save(writer, 200, 150), dir.file("run/checkpoints/step_00000200"));
  EXPECT_EQ(entries(dir.file("run/checkpoints/step_00000200")),
            (Names{"manifest.json", "model.safetensors", "optim.safetensors", "state.json"}));
  EXPECT_EQ(reporter.saves, std::vector<std::int64_t>{200});

  for (const char* path : {"run", "run/checkpoints", "run/checkpoints/step_00000200"}) {
    const auto reader = CheckpointReader::open(dir.file(path), reporter, true);
    EXPECT_EQ(to_json(reader.state()), [] {
      TrainState s = state_at(200);
      s.best_step = 150;
      s.best_loss = 1.5;
      return to_json(s);
    }());
    ToyRun loaded;
    reader.load_weights(loaded.parameters.named);
    reader.load_optimizer(*loaded.optimizer);
    EXPECT_TRUE(loaded.holds(200));
    EXPECT_EQ(reader.tokenizer()->name(), "byte");
  }
  EXPECT_EQ(reporter.notices, "");
}

TEST(Checkpoint, StateKeepsEveryNumber) {
  TrainState s = state_at(7);
  s.adamw = {0.9, 0.95, 1e-9, 0.123456789012345678};
  s.best_step = 3;
  s.best_loss = 2.0000000000000004;
  s.seed = 18'446'744'073'709'551'615U;
  s.skipped_steps = 2;
  s.skipped_in_row = 1;
  s.device = "cuda";
  s.model = preset("nano", Family::gpt2);
  s.model.coupling_layers = {0, 2};
  const TrainState t = parse_state(to_json(s), "state.json");
  EXPECT_EQ(to_json(t), to_json(s));
  EXPECT_EQ(t.adamw.weight_decay, s.adamw.weight_decay);
  EXPECT_EQ(t.best_loss, s.best_loss);
  EXPECT_EQ(t.seed, s.seed);
  EXPECT_EQ(t.device, "cuda");
  EXPECT_TRUE(differences(s.model, t.model).empty());
  ModelConfig other = s.model;
  other.n_embd = 64;
  other.n_kv_head = other.n_head;  // the same as 0
  EXPECT_EQ(differences(s.model, other), (Names{"d_ff: 512 and 256", "n_embd: 128 and 64"}));
}

TEST(Checkpoint, AStateThatNamesNoDeviceIsOfTheCpu) {
  TrainState s = state_at(7);
  s.model = preset("nano", Family::gpt2);
  std::string json = to_json(s);
  const std::string line = " \"device\": \"cpu\",\n";
  ASSERT_NE(json.find(line), std::string::npos) << json;
  json.erase(json.find(line), line.size());
  EXPECT_EQ(parse_state(json, "state.json").device, "cpu");
}

TEST(Checkpoint, TheSameStepGetsANewName) {
  const TempDirectory dir;
  Recorder reporter;
  CheckpointWriter writer = writer_for(dir, reporter);
  ToyRun run;
  run.save(writer, 5);
  const auto before = snapshot(dir.file("run/checkpoints/step_00000005"));
  EXPECT_EQ(run.save(writer, 5), dir.file("run/checkpoints/step_00000005-2"));
  EXPECT_EQ(run.save(writer, 5), dir.file("run/checkpoints/step_00000005-3"));
  EXPECT_TRUE(same_files(snapshot(dir.file("run/checkpoints/step_00000005")), before));
  EXPECT_EQ(CheckpointReader::open(dir.file("run"), reporter).directory(),
            dir.file("run/checkpoints/step_00000005-3"));
}

// C13: by number, not by name; never below two.
TEST(Checkpoint, PrunesByNumber) {
  const TempDirectory dir;
  Recorder reporter;
  CheckpointWriter writer = writer_for(dir, reporter, /*keep=*/1);
  ToyRun run;
  for (const std::int64_t step : {9800, 9900, 10000, 123456789}) run.save(writer, step);
  EXPECT_EQ(entries(dir.file("run/checkpoints")), (Names{"step_00010000", "step_123456789"}));
}

TEST(Checkpoint, KeepsTheBest) {
  const TempDirectory dir;
  Recorder reporter;
  CheckpointWriter writer = writer_for(dir, reporter, /*keep=*/2);
  ToyRun run;
  for (const std::int64_t step : {1, 2, 3, 4, 5})
    run.save(writer, step, std::min<std::int64_t>(step, 2));
  EXPECT_EQ(entries(dir.file("run/checkpoints")),
            (Names{"step_00000002", "step_00000004", "step_00000005"}));
}

// C13 and fault 22: what this run did not make stays; symlinks are not followed.
TEST(Checkpoint, LeavesForeignThingsAlone) {
  const TempDirectory dir;
  Recorder reporter;
  ToyRun run;
  {
    CheckpointWriter other(dir.file("run/checkpoints"), "ffffffffffff", 2, reporter);
    TrainState state = state_at(1000);
    state.run_id = "ffffffffffff";
    run.set(1000);
    other.save(state, *run.optimizer);
  }
  const std::string place = dir.file("run/checkpoints/");
  std::filesystem::create_directories(dir.file("victim"));
  write_bytes(dir.file("victim/precious"), "1");
  std::filesystem::create_directory_symlink(dir.file("victim"), place + "step_00000001");
  std::filesystem::create_directory_symlink(dir.file("victim"), place + ".tmp-step_00000009-x");
  std::filesystem::create_directories(place + "step-99999999");
  std::filesystem::create_directories(place + "step_00000002");
  std::filesystem::create_directories(place + "notes");
  const Names foreign = entries(place);
  CheckpointWriter writer = writer_for(dir, reporter, /*keep=*/1);
  writer.remove_leftovers();
  for (const std::int64_t step : {10, 11, 12, 13}) run.save(writer, step);
  Names expected = foreign;
  expected.insert(expected.end(), {"step_00000012", "step_00000013"});
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(entries(place), expected);
  EXPECT_EQ(read_bytes(dir.file("victim/precious")), "1");
}

// A resume that fell back leaves newer, damaged checkpoints behind: they neither count nor go.
TEST(Checkpoint, RejectedAndStaleOnesDoNotCountAsKept) {
  const TempDirectory dir;
  Recorder reporter;
  CheckpointWriter writer = writer_for(dir, reporter, /*keep=*/2);
  ToyRun run;
  for (const std::int64_t step : {9, 10}) run.save(writer, step);
  for (const char* name : {"step_00000009", "step_00000010"}) {
    const std::string path = concat(dir.file("run/checkpoints/"), name, "/model.safetensors");
    std::string bytes = read_bytes(path);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);  // the size stays
    write_bytes(path, bytes);
  }
  CheckpointWriter again = writer_for(dir, reporter, /*keep=*/2);
  run.save(again, 7);  // as if the run had gone on from 6
  EXPECT_EQ(CheckpointReader::open(dir.file("run"), reporter).state().step, 7);
  again.ignore({"step_00000009", "step_00000010"});
  for (const std::int64_t step : {8, 9, 10}) run.save(again, step);
  EXPECT_EQ(entries(dir.file("run/checkpoints")),
            (Names{"step_00000009", "step_00000009-2", "step_00000010", "step_00000010-2"}));
  EXPECT_EQ(CheckpointReader::open(dir.file("run"), reporter).directory(),
            dir.file("run/checkpoints/step_00000010-2"));
}

TEST(Checkpoint, NonFiniteWeightsAreNeverSaved) {
  const TempDirectory dir;
  Recorder reporter;
  CheckpointWriter writer = writer_for(dir, reporter);
  ToyRun run;
  run.save(writer, 1);
  const auto before = snapshot(dir.path());
  run.set(2);
  run.parameters.named[1].value.mutable_data<float>()[2] = std::nanf("");
  expect_in("bias holds NaN or infinity after step 2",
            error_of(ErrorKind::non_finite, [&] { writer.save(state_at(2), *run.optimizer); }));
  EXPECT_TRUE(same_files(snapshot(dir.path()), before));
}

TEST(Checkpoint, LeftoversAreNamedAndRemoved) {
  const TempDirectory dir;
  Recorder reporter;
  CheckpointWriter writer = writer_for(dir, reporter);
  const std::string place = dir.file("run/checkpoints/");
  std::filesystem::create_directories(place + ".tmp-step_00000003-0123456789ab");
  std::filesystem::create_directories(place + ".trash-step_00000001-0123456789ab");
  std::filesystem::create_directories(place + ".tmp-other");
  writer.remove_leftovers();
  EXPECT_EQ(entries(place), Names{".tmp-other"});
  expect_in(".tmp-step_00000003", reporter.notices);
  expect_in(".trash-step_00000001", reporter.notices);
}

// C16: tensor, file shape, model shape; nothing is loaded.
TEST(Checkpoint, ListsWhatDoesNotFit) {
  const TempDirectory dir;
  Recorder reporter;
  CheckpointWriter writer = writer_for(dir, reporter);
  ToyRun run;
  run.save(writer, 3);
  Parameters wrong;
  wrong.add("weight", Tensor::zeros({3, 2}, DType::f32));
  for (int i = 0; i < 12; ++i) wrong.add(concat("new", i), Tensor::zeros({1}, DType::f32));
  const auto reader = CheckpointReader::open(dir.file("run"), reporter);
  const std::string text = error_of(ErrorKind::file, [&] { reader.load_weights(wrong.named); });
  expect_in("14 tensors do not fit the model", text);
  expect_in("weight: the file has F32 [2, 3], the model wants f32 [3, 2]", text);
  expect_in("new8: missing in the file", text);
  EXPECT_EQ(text.find("new9"), std::string::npos);
  expect_in("and 4 more", text);
  EXPECT_EQ(wrong.named[0].value.data<float>()[0], 0.0F);
}

TEST(Checkpoint, InitialWeightsComeFromARunACheckpointOrAFile) {
  const TempDirectory dir;
  Recorder reporter;
  CheckpointWriter writer = writer_for(dir, reporter);
  ToyRun run;
  const std::string saved = run.save(writer, 3);
  for (const std::string& path : {dir.file("run"), saved, saved + "/model.safetensors"}) {
    ToyRun other;
    load_initial_weights(path, other.parameters.named, {}, reporter);
    EXPECT_EQ(other.parameters.named[0].value.data<float>()[1], 301.5F);
    EXPECT_EQ(other.optimizer->steps(), 0);
  }
  expect_in("there is nothing of this name", error_of(ErrorKind::file, [&] {
              load_initial_weights(dir.file("none"), run.parameters.named, {}, reporter);
            }));
  std::filesystem::create_directories(dir.file("empty"));
  expect_in("there is no checkpoint", error_of(ErrorKind::file, [&] {
              load_initial_weights(dir.file("empty"), run.parameters.named, {}, reporter);
            }));
}

}  // namespace
}  // namespace duet::test
