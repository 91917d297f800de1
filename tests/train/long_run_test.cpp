// Long runs meet the world: saves that fail, wishes to stop in the middle of something, and the
// time that diagnostics take.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "models/transformer.h"
#include "runtime/file_system.h"
#include "tests/models/model_helpers.h"
#include "tests/runtime/errors.h"
#include "tests/train/checkpoint_support.h"
#include "train/look.h"
#include "train/trainer.h"

namespace duet::test {
namespace {

namespace fs = std::filesystem;

// No file can be made or written while `error` is set.
class BrokenDisk final : public SystemCalls {
 public:
  int error = 0;
  int openat(int directory, const char* path, int flags, mode_t mode) override {
    return error != 0 && (flags & O_CREAT) != 0 ? failed()
                                                : SystemCalls::openat(directory, path, flags, mode);
  }
  ssize_t write(int fd, const void* data, std::size_t bytes) override {
    return error != 0 ? failed() : SystemCalls::write(fd, data, bytes);
  }
  int fsync(int) override { return error != 0 ? failed() : 0; }

 private:
  int failed() const {
    errno = error;
    return -1;
  }
};

TrainResult run(const RunConfig& config, Recorder& reporter, TrainContext context = {}) {
  context.reporter = &reporter;
  return train(config, context);
}

// A run of 12 steps that saves at 4, 8 and 12, without a fault.
std::map<std::string, std::string> straight_tensors(RunConfig config, const TempDirectory& dir) {
  config.out_dir = dir.file("straight");
  Recorder reporter;
  return checkpoint_tensors(run(config, reporter).checkpoint);
}

TEST(FailedSave, TheRunGoesOnAndTheNextSaveTriesAgain) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  const auto straight = straight_tensors(config, dir);
  for (const int error : {ENOSPC, EDQUOT, EACCES, EROFS, EIO}) {
    SCOPED_TRACE(error);
    config.out_dir = dir.file(concat("run", error));
    BrokenDisk disk;
    FileSystem files(disk);
    const FileSystemOverride use(files);
    Recorder reporter;
    reporter.after_step = [&](const StepReport& r) { disk.error = r.step < 11 ? error : 0; };
    const TrainResult result = run(config, reporter);
    EXPECT_EQ(result.step, 12);
    EXPECT_EQ(reporter.saves, (std::vector<std::int64_t>{12}));
    for (const char* step : {"step 4 could not be saved: ", "step 8 could not be saved: "}) {
      expect_in(step, reporter.notices);
    }
    expect_in("training goes on", reporter.notices);
    EXPECT_TRUE(checkpoint_tensors(result.checkpoint) == straight);
  }
}

TEST(FailedSave, OnlyTheEndThatCannotBeSavedIsAFailure) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  for (const bool stopped : {false, true}) {
    config.out_dir = dir.file(stopped ? "stopped" : "ended");
    BrokenDisk disk;
    FileSystem files(disk);
    const FileSystemOverride use(files);
    const StopScope stop;
    Recorder reporter;
    reporter.after_step = [&](const StepReport& r) {
      if (r.step == 6) disk.error = ENOSPC;
      if (r.step == 7 && stopped) request_stop(15);
    };
    const std::string text = error_of(ErrorKind::io, [&] { run(config, reporter); });
    expect_in(stopped ? "the end, step 7, could not be saved: " : "the end, step 12, could not",
              text);
    expect_in("step_00000004", text);
    EXPECT_EQ(reporter.steps.size(), stopped ? 7U : 12U);
  }
}

TEST(FailedSave, ADirectoryThatIsGoneForAWhile) {
  const TempDirectory dir;
  const RunConfig config = tiny_run(dir);
  const auto straight = straight_tensors(config, dir);
  Recorder reporter;
  reporter.after_step = [&](const StepReport& r) {
    if (r.step == 6) fs::rename(config.out_dir, dir.file("elsewhere"));
    if (r.step == 10) fs::rename(dir.file("elsewhere"), config.out_dir);
  };
  EXPECT_EQ(run(config, reporter).step, 12);
  EXPECT_TRUE(checkpoint_tensors(config.out_dir + "/checkpoints/step_00000012") == straight);
}

TEST(FailedSave, ADeletedDirectoryIsTold) {
  const TempDirectory dir;
  const RunConfig config = tiny_run(dir);
  Recorder reporter;
  reporter.after_step = [&](const StepReport& r) {
    if (r.step == 6) fs::remove_all(config.out_dir);
  };
  expect_in("the end, step 12, could not be saved",
            error_of(ErrorKind::io, [&] { run(config, reporter); }));
  EXPECT_EQ(reporter.steps.size(), 12U);
  expect_in("step 8 could not be saved", reporter.notices);
}

// Room for so many checkpoints of the directory; what is written there counts.
class SmallDisk final : public SystemCalls {
 public:
  SmallDisk(std::string directory, std::int64_t room) : directory_(std::move(directory)) {
    room_ = room;
  }
  std::int64_t free_space(const char*) override {
    std::int64_t held = 0;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      held += entry.path().filename().string().rfind("step_", 0) == 0 ? 1 : 0;
    }
    return std::max<std::int64_t>(0, room_ - held) * (1 << 18);
  }

 private:
  std::string directory_;
  std::int64_t room_ = 0;
};

TEST(FailedSave, OldCheckpointsMakeRoomFirst) {
  const TempDirectory dir;
  Recorder reporter;
  ToyRun toy;
  CheckpointWriter writer = writer_for(dir, reporter, /*keep=*/3);
  for (const std::int64_t step : {1, 2, 3}) toy.save(writer, step);
  const std::string place = dir.file("run/checkpoints");
  {
    SmallDisk disk(place, 3);
    FileSystem files(disk);
    const FileSystemOverride use(files);
    toy.save(writer, 4);
  }
  EXPECT_EQ(entries(place),
            (std::vector<std::string>{"step_00000002", "step_00000003", "step_00000004"}));
  // Two are never given up, nor is any for a fault that more room does not mend.
  SmallDisk full(place, 0);
  BrokenDisk broken;
  broken.error = EIO;
  FileSystem full_files(full), broken_files(broken);
  {
    const FileSystemOverride use(broken_files);
    error_of(ErrorKind::io, [&] { toy.save(writer, 5); });
  }
  EXPECT_EQ(entries(place).size(), 3U);
  const FileSystemOverride use(full_files);
  expect_in("not enough room for a checkpoint: got 0 bytes free",
            error_of(ErrorKind::io, [&] { toy.save(writer, 5); }));
  EXPECT_EQ(entries(place), (std::vector<std::string>{"step_00000003", "step_00000004"}));
}

// Those kept, the best, and the one being written: five at once of a run with keep = 3.
TEST(FailedSave, RoomForAllThatIsKeptIsCheckedFirst) {
  const TempDirectory dir;
  Recorder reporter;
  ToyRun toy;
  const CheckpointWriter writer = writer_for(dir, reporter, /*keep=*/3);
  const std::string place = dir.file("run/checkpoints");
  const auto fits = [&](std::int64_t room, std::int64_t saves) {
    SmallDisk disk(place, room);
    FileSystem files(disk);
    const FileSystemOverride use(files);
    try {
      writer.check_space(*toy.optimizer, saves);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::io);
      expect_in("checkpoints, the most at once: got ", error.what());
      return false;
    }
    return true;
  };
  // A checkpoint of the toy is counted as 72 KiB, and the disk has 256 KiB for each.
  EXPECT_FALSE(fits(1, 100));
  EXPECT_TRUE(fits(2, 100));
  EXPECT_TRUE(fits(1, 3));
}

// --- Wishes to stop

// Stopped when `phase` of the n-th micro-batch begins, then resumed: the bits of a straight run.
TEST(Stop, InsideAStepDropsTheStep) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  config.gradient_accumulation_steps = 3;
  config.model.dropout = 0.2;
  const auto straight = straight_tensors(config, dir);
  int number = 0;
  for (const StepPhase phase : {StepPhase::forward, StepPhase::backward}) {
    for (const int micro : {1, 3}) {
      SCOPED_TRACE(concat(phase == StepPhase::forward ? "forward " : "backward ", micro));
      config.out_dir = dir.file(concat("run", number++));
      config.resume = false;
      std::int64_t steps = 0;
      int seen = 0;
      TrainContext context;
      Recorder reporter;
      reporter.after_step = [&](const StepReport& r) {
        steps = r.step;
        seen = 0;
      };
      context.hooks.on_phase = [&](StepPhase now) {
        if (steps == 5 && now == phase && ++seen == micro) request_stop(12);
      };
      {
        const StopScope stop;
        const TrainResult result = run(config, reporter, context);
        EXPECT_EQ(result.step, 5);
        EXPECT_EQ(result.signal, 12);
      }
      config.resume = true;
      Recorder again;
      EXPECT_TRUE(checkpoint_tensors(run(config, again).checkpoint) == straight);
    }
  }
}

// Before the first step there is nothing to keep: while the data is read, or in its first step.
TEST(Stop, BeforeTheFirstStepLeavesNothing) {
  const TempDirectory dir;
  const RunConfig config = tiny_run(dir);
  for (const bool at_once : {true, false}) {
    const StopScope stop;
    TrainContext context;
    context.hooks.on_phase = [](StepPhase) { request_stop(15); };
    if (at_once) request_stop(15);
    Recorder reporter;
    const TrainResult result = run(config, reporter, context);
    EXPECT_EQ(result.step, 0);
    EXPECT_EQ(result.signal, 15);
    EXPECT_EQ(entries(dir.path()), std::vector<std::string>{"text"});
  }
}

TEST(Stop, LeavesALookAndAnEvaluation) {
  ModelConfig config = micro(Family::llama);
  config.n_layer = 3;
  Transformer model(config);
  model.initialize(1);
  const Tensor ids = make_ids(2, 8, 13);
  const StopScope stop;
  int layers = 0;
  EXPECT_THROW(diagnose(model, ids,
                        [&](double) {
                          ++layers;
                          return request_stop(15);
                        }),
               Stopped);
  EXPECT_EQ(layers, 1);
}

// --- The time of diagnostics

TEST(Looks, TakeAShareOfTheTimeAndWaitForIt) {
  ModelConfig config = micro(Family::llama);
  config.n_layer = 2;
  Transformer model(config);
  model.initialize(1);
  const Tensor ids = make_ids(2, 8, 13);  // 4 layers to look at
  double now = 0, per_call = 0;
  Looks looks(0.02, [&] { return now += per_call; });
  EXPECT_FALSE(looks.look(model, ids));  // nothing is earned yet
  now = 100;                             // 2 seconds
  per_call = 1;  // each asking of the clock: a layer takes a second, so a look about 4
  EXPECT_FALSE(looks.look(model, ids));
  EXPECT_GT(looks.needs(), 2);
  EXPECT_LT(looks.left(), 2);
  const double needs = looks.needs();
  per_call = 0;
  now += 50 * (needs - looks.left()) - 1;
  EXPECT_FALSE(looks.look(model, ids));  // a second too early
  EXPECT_EQ(looks.needs(), needs);
  now += 1.1;
  per_call = 0.01;
  const auto found = looks.look(model, ids);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->effective_rank, diagnose(model, ids).effective_rank);
  EXPECT_LT(looks.needs(), 0.1);
}

// The budget does not let a look change the training, and what is left out is told.
TEST(Looks, LeftOutTheyAreToldAndChangeNothing) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  std::map<std::string, std::string> tensors;
  for (const double share : {0.0, 1e9}) {
    config.out_dir = dir.file(concat("run", share));
    TrainContext context;
    context.diagnostics_share = share;
    Recorder reporter;
    const auto now = checkpoint_tensors(run(config, reporter, context).checkpoint);
    for (const EvalReport& e : reporter.evals) {
      EXPECT_EQ(e.diagnostics.has_value(), share > 0);
      EXPECT_EQ(e.look_left_out, share == 0);
    }
    if (share == 0) tensors = now;
    EXPECT_TRUE(now == tensors);
  }
}

// The spectrum of a map is cubic in its size: what a run looks at does not grow with block_size.
TEST(Looks, HaveABoundedSize) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  std::string text(20'000, 'x');
  write_bytes(config.data, text);
  config.model.block_size = 600;
  config.max_iters = 1;
  TrainContext context;
  context.diagnostics_share = 1e9;
  Recorder reporter;
  run(config, reporter, context);
  ASSERT_TRUE(reporter.evals.back().diagnostics.has_value());
  EXPECT_LE(reporter.evals.back().diagnostics->effective_rank[0][0],
            static_cast<double>(kLookTokens));
  // Uniform maps of n tokens have a sink of H_n / n.
  double harmonic = 0;
  for (std::int64_t i = 1; i <= kLookTokens; ++i) harmonic += 1.0 / static_cast<double>(i);
  EXPECT_NEAR(reporter.evals[0].diagnostics->sink[0][0],
              harmonic / static_cast<double>(kLookTokens), 1e-3);
}

}  // namespace
}  // namespace duet::test
