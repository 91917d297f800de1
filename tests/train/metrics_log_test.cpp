// metrics.jsonl on a disk that fails, and what it and the checkpoints agree on.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <sstream>

#include "runtime/file_system.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/faulty_disk.h"
#include "tests/runtime/power_cut.h"
#include "tests/runtime/same_text.h"
#include "tests/train/train_support.h"
#include "train/lab/run_log.h"
#include "train/metrics.h"
#include "train/reporters.h"
#include "train/trainer.h"

namespace duet::test {
namespace {

namespace fs = std::filesystem;

// A quota that is used up: what would need room fails.
class FullQuota final : public SystemCalls {
 public:
  bool full = false, cuts = true;
  int openat(int directory, const char* path, int flags, mode_t mode) override {
    const bool makes = (flags & O_CREAT) != 0 && (flags & O_APPEND) == 0;
    return full && makes ? failed() : SystemCalls::openat(directory, path, flags, mode);
  }
  // Half of it fits.
  ssize_t write(int fd, const void* data, std::size_t bytes) override {
    if (!full) return SystemCalls::write(fd, data, bytes);
    if ((second_ = !second_)) return SystemCalls::write(fd, data, bytes / 2 + 1);
    return failed();
  }
  int ftruncate(int fd, off_t size) override {
    return full && !cuts ? failed() : SystemCalls::ftruncate(fd, size);
  }

 private:
  static int failed() {
    errno = EDQUOT;
    return -1;
  }
  bool second_ = false;
};

class MetricsLogTest : public testing::Test {
 protected:
  std::string path() const { return dir_.file("metrics.jsonl"); }
  static void step(Reporter& metrics, std::int64_t n) {
    StepReport report;
    report.step = n;
    report.max_iters = 1000;
    report.loss = 1;
    report.seconds = 0.5;
    report.step_tokens = 64;
    metrics.on_step(report);
  }
  static void eval(Reporter& metrics, std::int64_t n) {
    metrics.on_eval({n, n, 2, 7.4, 2.9, false, {}, {}, {}});
  }
  static void resume(Metrics& metrics, std::int64_t n) {
    StartReport start;
    start.step = n;
    start.resumed_from = "x";
    metrics.on_start(start);
  }
  // A log of steps 1 to n.
  void write_log(std::int64_t n) const {
    Reporter silent;
    Metrics metrics(dir_.path(), 1, silent);
    metrics.on_start({});
    for (std::int64_t i = 1; i <= n; ++i) step(metrics, i);
  }
  // "1 2 3v ": the steps of whole lines, those with an evaluation marked; "?" for another line.
  std::string outline(const std::string& file) const {
    std::istringstream in(read_bytes(file));
    std::string out;
    for (std::string line; std::getline(in, line);) {
      const bool whole = line.rfind("{\"step\":", 0) == 0 && line.back() == '}';
      out += whole ? line.substr(8, line.find(',') - 8) : "?";
      if (line.find("val/loss") != std::string::npos) out += "v";
      out += " ";
    }
    return out;
  }
  static std::string steps_to(std::int64_t n) {
    std::string out;
    for (std::int64_t i = 1; i <= n; ++i) out += std::to_string(i) + " ";
    return out;
  }

  TempDirectory dir_;
};

// Repair and appends fail: not a line goes, and those that could not be written come later.
TEST_F(MetricsLogTest, AFullQuotaCostsNoLine) {
  for (const bool cuts : {true, false}) {
    SCOPED_TRACE(cuts);
    write_bytes(path(), "");
    write_log(200);
    // Foreign bytes in the middle ask for a new file, a torn line for a cut.
    std::string text = read_bytes(path());
    text.insert(text.find("{\"step\":100,"), "no line of ours\n");
    write_bytes(path(), text + "{\"step\":201,\"tok");
    FullQuota disk;
    disk.cuts = cuts;
    FileSystem files(disk);
    const FileSystemOverride use(files);
    Recorder told;
    Metrics metrics(dir_.path(), 1, told);
    disk.full = true;
    resume(metrics, 200);
    for (std::int64_t i = 201; i <= 203; ++i) step(metrics, i);
    error_of(ErrorKind::io, [&] { metrics.on_save(); });  // the checkpoint waits, too
    const std::string now = read_bytes(path());
    EXPECT_EQ(now.substr(0, text.size()), text);
    EXPECT_EQ(told.notices.find("metrics.jsonl: cannot be written: "), 0U) << told.notices;
    EXPECT_EQ(std::count(told.notices.begin(), told.notices.end(), '\n'), 1) << told.notices;
    disk.full = false;
    step(metrics, 204);
    metrics.on_save();
    EXPECT_EQ(outline(path()), steps_to(204));
  }
}

// The same in the middle of a run, with half a line written each time.
TEST_F(MetricsLogTest, LinesWaitForRoom) {
  FullQuota disk;
  FileSystem files(disk);
  const FileSystemOverride use(files);
  Recorder told;
  Metrics metrics(dir_.path(), 1, told);
  metrics.on_start({});
  for (std::int64_t i = 1; i <= 30; ++i) {
    disk.full = i / 5 % 2 == 1;
    disk.cuts = i < 15;
    step(metrics, i);
  }
  disk.full = false;
  metrics.flush();
  EXPECT_EQ(outline(path()), steps_to(30));
}

// A line is on the disk before its checkpoint is final.
TEST_F(MetricsLogTest, ASaveBringsTheLinesToTheDisk) {
  RecordingDisk disk(dir_.path());
  FileSystem files(disk);
  const FileSystemOverride use(files);
  Reporter silent;
  Metrics metrics(dir_.path(), 1, silent);
  metrics.on_start({});
  for (std::int64_t i = 1; i <= 10; ++i) step(metrics, i);
  metrics.on_save();
  EXPECT_EQ(outline(path()), steps_to(10));
  const Files saved{{"metrics.jsonl", read_bytes(path())}};
  DiskModel model = disk.begin();
  for (const DiskEvent& event : disk.events()) model.apply(event);
  model.each_state([&](const Files& left, bool) { EXPECT_EQ(left, saved); });
}

TEST_F(MetricsLogTest, ACheckpointIsFinalAfterItsLine) {
  struct Watch final : Reporter {
    std::string out_dir;
    std::vector<std::string> seen;
    void on_save() override {
      for (const std::string& name : entries(out_dir + "/checkpoints")) {
        seen.push_back(name.substr(0, 6));
      }
      const RunLog log = read_run_log(out_dir);
      EXPECT_NE(log.evaluation(log.last_step()), nullptr);
      lines.push_back(log.last_step());
    }
    std::vector<std::int64_t> lines;
  } watch;
  RunConfig config = tiny_run(dir_);
  config.max_iters = 8;
  watch.out_dir = config.out_dir;
  Reporter silent;
  Metrics metrics(config.out_dir, 1, silent);
  Reporters both({&metrics, &watch});
  TrainContext context;
  context.reporter = &both;
  train(config, context);
  EXPECT_EQ(watch.lines, (std::vector<std::int64_t>{4, 8}));
  EXPECT_EQ(watch.seen, (std::vector<std::string>{".tmp-s", ".tmp-s", "step_0"}));
}

// The checkpoints are gone: what the log tells of is kept under another name.
TEST_F(MetricsLogTest, ALogWithoutCheckpointsIsKept) {
  for (const char* aside : {"metrics.jsonl.1", "metrics.jsonl.2"}) {
    write_log(20);
    const std::string before = read_bytes(path());
    Recorder told;
    Metrics metrics(dir_.path(), 1, told);
    metrics.on_start({});
    EXPECT_FALSE(fs::exists(path()));
    EXPECT_EQ(read_bytes(dir_.file(aside)), before);
    expect_in(concat("kept as ", dir_.file(aside)), told.notices);
    step(metrics, 1);
    metrics.on_save();
    EXPECT_EQ(outline(path()), "1 ");
    fs::remove(path());
  }
}

// A line is taken back for the evaluation that its run still owed: through a copy.
TEST_F(MetricsLogTest, ATakenBackLineIsNeverMissing) {
  std::int64_t calls = 1000;
  for (std::int64_t n = 1; n <= calls; ++n) {
    SCOPED_TRACE(n);
    write_bytes(path(), "");
    write_log(5);
    FaultyDisk disk;
    disk.mode = FaultyDisk::Mode::kill;
    disk.at = n;
    FileSystem files(disk);
    const FileSystemOverride use(files);
    Reporter silent;
    try {
      Metrics metrics(dir_.path(), 1, silent);
      resume(metrics, 5);
      eval(metrics, 5);
    } catch (const FaultyDisk::Killed&) {  // what is on the disk now stays
    }
    const std::string now = outline(path());
    EXPECT_TRUE(now == "1 2 3 4 5 " || now == "1 2 3 4 5v ") << now;
    if (!disk.killed) {
      EXPECT_EQ(now, "1 2 3 4 5v ");
      calls = n;
    }
  }
  EXPECT_GT(calls, 3);
}

// The checkpoint of the end is there and its log line is not: the run owes the line, not a step.
TEST_F(MetricsLogTest, ALostEvaluationIsToldAgain) {
  RunConfig config = tiny_run(dir_);
  Recorder told;
  const auto go = [&] {
    Metrics metrics(config.out_dir, 1, told);
    Reporters both({&told, &metrics});
    TrainContext context;
    context.reporter = &both;
    const TrainResult result = train(config, context);
    metrics.flush();
    return result;
  };
  go();
  const std::string log = config.out_dir + "/metrics.jsonl", whole = read_bytes(log);
  const auto checkpoints = snapshot(config.out_dir + "/checkpoints");
  const RunPoint last = *read_run_log(config.out_dir).evaluation(12);
  config.resume = true;
  for (const bool torn : {false, true}) {
    const std::size_t line = whole.rfind('\n', whole.size() - 2) + 1;
    write_bytes(log, whole.substr(0, torn ? line + 10 : line));
    EXPECT_FALSE(go().already_complete);
    const RunPoint* again = read_run_log(config.out_dir).evaluation(12);
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(again->val, last.val);
    EXPECT_TRUE(same_files(snapshot(config.out_dir + "/checkpoints"), checkpoints));
    EXPECT_TRUE(go().already_complete);
  }
  EXPECT_EQ(told.steps.size(), 12U);
}

}  // namespace
}  // namespace duet::test
