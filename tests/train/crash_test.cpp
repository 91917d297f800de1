// Crash safety of a save, call by call (C12): whatever happens at any one of them, the last
// complete checkpoint loads, and the next run goes on.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/runtime/errors.h"
#include "tests/runtime/faulty_disk.h"
#include "tests/runtime/same_text.h"
#include "tests/train/checkpoint_support.h"

namespace duet::test {
namespace {

using Mode = FaultyDisk::Mode;

// A run with checkpoints of steps 1, 2, 3 that keeps two: saving step 4 also removes step 2.
struct Scene {
  TempDirectory dir;
  Recorder reporter;
  ToyRun run;

  Scene() {
    FaultyDisk quick;  // no real fsync
    FileSystem files(quick);
    const FileSystemOverride use(files);
    CheckpointWriter writer = writer_for(dir, reporter, /*keep=*/2);
    for (const std::int64_t step : {1, 2, 3}) run.save(writer, step);
  }
  // Saves step 4 on `disk`. True if save() returned.
  bool save(FaultyDisk& disk) {
    FileSystem files(disk);
    const FileSystemOverride use(files);
    try {
      CheckpointWriter writer = writer_for(dir, reporter, /*keep=*/2);
      run.save(writer, 4);
      return true;
    } catch (const Error& e) {
      EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(ErrorKind::io)) << e.what();
      return false;
    }
  }
  std::int64_t newest() {
    const auto reader = CheckpointReader::open(dir.file("run"), reporter, true);
    ToyRun loaded;
    reader.load_weights(loaded.parameters.named);
    reader.load_optimizer(*loaded.optimizer);
    EXPECT_TRUE(loaded.holds(reader.state().step));
    return reader.state().step;
  }
  std::vector<std::string> names() const { return entries(dir.file("run/checkpoints")); }
};

std::int64_t count_calls() {
  Scene scene;
  FaultyDisk disk;
  EXPECT_TRUE(scene.save(disk));
  EXPECT_EQ(scene.names(), (std::vector<std::string>{"step_00000003", "step_00000004"}));
  return disk.calls;
}

TEST(Crash, AtEveryCallOfASave) {
  const std::int64_t calls = count_calls();
  ASSERT_GT(calls, 20);
  std::int64_t new_ones = 0;
  for (std::int64_t n = 1;; ++n) {
    Scene scene;
    FaultyDisk disk;
    disk.mode = Mode::kill;
    disk.at = n;
    bool returned = false;
    try {
      returned = scene.save(disk);
    } catch (const FaultyDisk::Killed&) {
    }
    if (!disk.killed) break;
    SCOPED_TRACE(concat("call ", n, " (", disk.failed_call, ")"));
    EXPECT_FALSE(returned);
    const std::int64_t step = scene.newest();
    EXPECT_TRUE(step == 3 || step == 4) << step;
    new_ones += step == 4 ? 1 : 0;
    // The next run cleans up and saves the step that was lost, or the same one again.
    FaultyDisk sound;
    FileSystem files(sound);
    const FileSystemOverride use(files);
    CheckpointWriter writer = writer_for(scene.dir, scene.reporter, /*keep=*/2);
    writer.remove_leftovers();
    scene.run.save(writer, 4);
    EXPECT_EQ(scene.newest(), 4);
    for (const std::string& name : scene.names()) EXPECT_NE(name[0], '.') << name;
  }
  EXPECT_GT(new_ones, 0);  // the sweep also met kills after the rename, while pruning
}

TEST(Crash, AFullDiskOrAnErrorLeavesTheOldCheckpointsAndNoRest) {
  const std::int64_t calls = count_calls();
  for (const Mode mode : {Mode::no_space, Mode::io_error}) {
    for (std::int64_t n = 1; n <= calls; ++n) {
      Scene scene;
      const auto before = snapshot(scene.dir.path());
      FaultyDisk disk;
      disk.mode = mode;
      disk.at = n;
      const bool returned = scene.save(disk);
      SCOPED_TRACE(concat("call ", n, " (", disk.failed_call, ")"));
      EXPECT_EQ(scene.newest(), scene.names().back() == "step_00000004" ? 4 : 3);
      if (returned) {
        EXPECT_EQ(scene.newest(), 4);  // only pruning met the fault
      } else if (scene.newest() == 3) {
        EXPECT_TRUE(same_files(snapshot(scene.dir.path()), before));
      }
    }
  }
}

TEST(Crash, ShortAndInterruptedWritesLoseNothing) {
  Scene scene;
  FaultyDisk disk;
  disk.mode = Mode::stutter;
  EXPECT_TRUE(scene.save(disk));
  EXPECT_EQ(scene.newest(), 4);
}

TEST(Crash, TooLittleSpaceIsSaidBeforeWriting) {
  struct SmallDisk final : SystemCalls {
    std::int64_t free_space(const char*) override { return 1000; }
  } calls;
  Scene scene;
  const auto before = snapshot(scene.dir.path());
  FileSystem files(calls);
  const FileSystemOverride use(files);
  CheckpointWriter writer = writer_for(scene.dir, scene.reporter);
  expect_in("not enough room for a checkpoint: got 1000 bytes free",
            error_of(ErrorKind::io, [&] { scene.run.save(writer, 4); }));
  EXPECT_TRUE(same_files(snapshot(scene.dir.path()), before));
}

}  // namespace
}  // namespace duet::test
