// Whole runs on a disk that fails at the n-th call, for every n, and on one that loses power: what
// was finished is there, and the resumed run ends with the bits and the log of an undisturbed one.
// The test set takes a part of the n; DUET_TEST_SOAK=1 (nightly) takes all.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <set>

#include "runtime/hash.h"
#include "tests/runtime/power_cut.h"
#include "tests/runtime/soak.h"
#include "tests/train/run_life.h"

namespace duet::test {
namespace {

using Mode = FaultyDisk::Mode;

class CrashRun : public testing::Test {
 protected:
  // A run that was killed while it saved step 3: a half checkpoint, a half line of the log.
  void interrupt(const std::string& out_dir) const {
    FaultyDisk disk;
    disk.mode = Mode::kill;
    std::int64_t step = 0;
    const auto die_soon = [&](std::int64_t saved) {
      step = saved;
      if (saved == 2) disk.at = disk.calls + 20;  // one step on, in the middle of its save
    };
    EXPECT_EQ(static_cast<int>(check.live(out_dir, disk, die_soon).end),
              static_cast<int>(Life::End::killed));
    EXPECT_EQ(step, 2);
    EXPECT_EQ(entries(out_dir + "/checkpoints").at(0).substr(0, 5), ".tmp-");
    std::ofstream(out_dir + "/metrics.jsonl", std::ios::app) << "{\"step\":4,\"tok";
  }
  // Every stride-th call of a life, from `first` on, fails by `mode`; a second life mends it.
  void sweep(Mode mode, bool resumed, std::int64_t stride, std::int64_t first = 1) {
    const TempDirectory dir;
    const std::string start = dir.file("start"), out_dir = dir.file("run");
    if (resumed) interrupt(start);
    for (std::int64_t n = first;; n += soak() ? 1 : stride) {
      std::filesystem::remove_all(out_dir);
      if (resumed) std::filesystem::copy(start, out_dir, std::filesystem::copy_options::recursive);
      FaultyDisk disk;
      disk.mode = mode;
      disk.at = n;
      disk.reads = mode == Mode::io_error || mode == Mode::interrupted;
      const Life life = check.live(out_dir, disk);
      if (disk.failed_call.empty()) break;
      ++faults;
      SCOPED_TRACE(concat("call ", n, " (", disk.failed_call, ")", resumed ? " of a resume" : ""));
      if (mode == Mode::kill) {
        EXPECT_EQ(static_cast<int>(life.end), static_cast<int>(Life::End::killed));
      } else if (mode == Mode::short_write || (mode == Mode::interrupted && retried(disk))) {
        EXPECT_EQ(static_cast<int>(life.end), static_cast<int>(Life::End::done)) << life.message;
        EXPECT_EQ(life.notices.find("cannot"), std::string::npos) << life.notices;
      } else if (life.end != Life::End::done) {
        EXPECT_TRUE(life.kind == ErrorKind::io) << life.message;
      }
      check.check_left(out_dir, life);
      check.check_end(out_dir);
      if (HasFailure()) return;
    }
  }
  // Linux interrupts no change of a directory; were it to happen, it would be an error.
  static bool retried(const FaultyDisk& disk) {
    return disk.failed_call != "rename" && disk.failed_call != "mkdir" &&
           disk.failed_call != "unlink" && disk.failed_call != "statvfs";
  }
  // What the disk may hold had the power gone at any call that `disk` saw.
  // `only_after_saves`: of the calls, those with which a save ends.
  void cut_power(const RecordingDisk& disk, const std::string& run, bool only_after_saves,
                 std::vector<std::int64_t> finished = {}) {
    DiskModel model = disk.begin();
    std::int64_t number = 0;
    for (const DiskEvent& event : disk.events()) {
      model.apply(event);
      if (event.kind == DiskEvent::Kind::mark) finished.push_back(event.at);
      ++number;
      if (event.kind == DiskEvent::Kind::sync) continue;  // fewer states than before it
      if (only_after_saves && event.kind != DiskEvent::Kind::mark) continue;
      model.each_state([&](const Files& files, bool coarse) {
        if (HasFailure() || !fresh(files, finished)) return;
        ++states;
        if (!soak() && (coarse ? number % 3 : states % 50) != 0) return;
        ++checked;
        const TempDirectory after;
        write_files(files, after.path());
        SCOPED_TRACE(concat("power cut after event ", number, ", state ", states));
        check.check_files(after.file(run), finished);
        if (soak() || checked % 20 == 0) check.check_end(after.file(run));
      });
    }
  }
  void SetUp() override { ASSERT_EQ(check.steps(), 4); }
  void TearDown() override {
    std::printf(
        "faults %ld, states %ld (%ld checked), checkpoints %ld, lost %ld, unequal ends %ld\n",
        static_cast<long>(faults), static_cast<long>(states), static_cast<long>(checked),
        static_cast<long>(check.accepted), static_cast<long>(check.lost),
        static_cast<long>(check.unequal));
  }

  LifeCheck check;
  std::int64_t faults = 0, states = 0, checked = 0;

 private:
  bool fresh(const Files& files, const std::vector<std::int64_t>& finished) {
    Hasher hasher;
    for (const auto& [path, bytes] : files) {
      hasher.update(path.c_str(), path.size() + 1);
      const auto size = static_cast<std::int64_t>(bytes.size());
      hasher.update(&size, sizeof size);
      hasher.update(bytes.data(), bytes.size());
    }
    const std::size_t newest = finished.size();
    hasher.update(&newest, sizeof newest);
    return seen_.insert(hasher.hex()).second;
  }
  std::set<std::string> seen_;
};

TEST_F(CrashRun, AKillAtEveryCall) { sweep(Mode::kill, /*resumed=*/false, 3); }
TEST_F(CrashRun, AKillAtEveryCallOfAResume) { sweep(Mode::kill, /*resumed=*/true, 3); }

TEST_F(CrashRun, AnErrorAtEveryCall) {
  for (const Mode mode : {Mode::io_error, Mode::no_space, Mode::quota}) {
    sweep(mode, /*resumed=*/false, 11, static_cast<std::int64_t>(mode));
  }
}
TEST_F(CrashRun, AnErrorAtEveryCallOfAResume) {
  for (const Mode mode : {Mode::io_error, Mode::no_space, Mode::quota}) {
    sweep(mode, /*resumed=*/true, 11, static_cast<std::int64_t>(mode));
  }
}

TEST_F(CrashRun, InterruptedCallsAndShortWritesChangeNothing) {
  for (const bool resumed : {false, true}) {
    sweep(Mode::interrupted, resumed, 17);
    sweep(Mode::short_write, resumed, 5);
  }
}

TEST_F(CrashRun, APowerCutAtEveryCall) {
  const TempDirectory dir;
  RecordingDisk disk(dir.path());
  check.live(dir.file("run"), disk, [&](std::int64_t step) { disk.mark(step); });
  cut_power(disk, "run", /*only_after_saves=*/false);
}

TEST_F(CrashRun, APowerCutAtEveryCallOfAResume) {
  const TempDirectory dir;
  interrupt(dir.file("run"));
  RecordingDisk disk(dir.path());
  check.live(dir.file("run"), disk, [&](std::int64_t step) { disk.mark(step); });
  cut_power(disk, "run", /*only_after_saves=*/false, {1, 2});
}

// What a killed run wrote is seen by the next one, but may not be on the disk yet.
TEST_F(CrashRun, AKillAndThenAPowerCut) {
  for (std::int64_t n = 1;; n += soak() ? 1 : 5) {
    const TempDirectory dir;
    RecordingDisk disk(dir.path());
    FaultyDisk first(disk);
    first.mode = Mode::kill;
    first.at = n;
    const auto told = [&](std::int64_t step) { disk.mark(step); };
    const Life life = check.live(dir.file("run"), first, told);
    if (life.end != Life::End::killed) break;
    ++faults;
    SCOPED_TRACE(concat("killed at call ", n, " (", first.failed_call, ")"));
    if (!life.saved.empty() && !soak()) break;
    check.live(dir.file("run"), disk, told);
    cut_power(disk, "run", /*only_after_saves=*/true);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace duet::test
