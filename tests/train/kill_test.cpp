// A real process killed with SIGKILL at one of its file operations, all through a run: the resumed
// run ends with the bits of one that was never killed (fault 1 and 3).
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "runtime/file_system.h"
#include "tests/runtime/soak.h"
#include "tests/train/train_support.h"
#include "train/trainer.h"

namespace duet::test {
namespace {

constexpr const char* kDirectory = "DUET_TEST_KILL_DIRECTORY";
constexpr const char* kCall = "DUET_TEST_KILL_CALL";

// The n-th call that changes a file or directory is the process's last.
class DeadlyCalls final : public SystemCalls {
 public:
  explicit DeadlyCalls(std::int64_t n) : left_(n) {}
  ssize_t write(int fd, const void* data, std::size_t bytes) override {
    count();
    return SystemCalls::write(fd, data, bytes);
  }
  int fsync(int fd) override {
    count();
    return SystemCalls::fsync(fd);
  }
  int rename(int directory, const char* from, const char* to) override {
    count();
    return SystemCalls::rename(directory, from, to);
  }
  int mkdir(int directory, const char* path, mode_t mode) override {
    count();
    return SystemCalls::mkdir(directory, path, mode);
  }
  int unlinkat(int directory, const char* path, int flags) override {
    count();
    return SystemCalls::unlinkat(directory, path, flags);
  }

 private:
  void count() {
    if (--left_ == 0) ::raise(SIGKILL);
  }
  std::int64_t left_;
};

RunConfig run_in(const TempDirectory& dir) {
  RunConfig config = tiny_run(dir);
  config.max_iters = 6;
  config.eval_interval = 2;
  config.keep = 2;  // so that it also prunes
  return config;
}

// What the child process runs; the parent names it with --gtest_also_run_disabled_tests.
TEST(Kill, DISABLED_Child) {
  const char* out_dir = std::getenv(kDirectory);
  const char* call = std::getenv(kCall);
  ASSERT_TRUE(out_dir != nullptr && call != nullptr);
  const TempDirectory dir;
  RunConfig config = run_in(dir);
  config.data = (std::filesystem::path(out_dir).parent_path() / "text").string();
  config.out_dir = out_dir;
  DeadlyCalls calls(std::strtoll(call, nullptr, 10));
  FileSystem files(calls);
  const FileSystemOverride use(files);
  train(config);
}

// True if the child was killed, false if it came to its end.
bool run_child(const std::string& out_dir, std::int64_t call) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv(kDirectory, out_dir.c_str(), 1);
    ::setenv(kCall, std::to_string(call).c_str(), 1);
    ::execl("/proc/self/exe", "train_tests", "--gtest_filter=Kill.DISABLED_Child",
            "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
    ::_exit(127);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  EXPECT_TRUE(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << status;
  return killed;
}

TEST(Kill, AtFileOperationsAllThroughARun) {
  const TempDirectory dir;
  RunConfig config = run_in(dir);
  config.out_dir = dir.file("straight");
  const auto straight = checkpoint_tensors(train(config).checkpoint);
  std::int64_t kills = 0;
  for (std::int64_t call = 1;; call += soak() ? 1 : 5) {
    SCOPED_TRACE(concat("killed at call ", call));
    config.out_dir = dir.file(concat("run", call));
    if (!run_child(config.out_dir, call)) break;
    ++kills;
    config.resume = std::filesystem::exists(config.out_dir);
    const TrainResult result = train(config);
    config.resume = false;
    ASSERT_EQ(result.step, 6);
    EXPECT_TRUE(checkpoint_tensors(result.checkpoint) == straight);
    if (result.already_complete) continue;  // killed while tidying up; nothing more is written
    for (const std::string& name : entries(config.out_dir + "/checkpoints")) {
      EXPECT_NE(name[0], '.') << name;
    }
  }
  EXPECT_GT(kills, 10);
}

}  // namespace
}  // namespace duet::test
