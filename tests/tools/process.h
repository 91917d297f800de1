// The built `duet` as a process: what it prints, how it ends, what it leaves behind.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace duet::test {

namespace fs = std::filesystem;

inline std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

struct Ended {
  int code = -1;  // the exit code, or 1000 + the signal that killed it
  std::string out, err;
  std::uint64_t peak_resident = 0;  // bytes
};

struct ProcessOptions {
  std::string input;            // standard input
  std::function<void()> child;  // run in the child just before exec: limits, closed descriptors
  std::vector<std::string> environment;  // "NAME=value", on top of the test's own
  std::string program = "duet";          // argv[0]: as though it was found through PATH
  std::string file = DUET_BINARY;        // what is executed
};

// A running `duet`; its output goes to files, so that no pipe can fill up.
class Process {
 public:
  Process(const fs::path& directory, const std::vector<std::string>& arguments,
          const ProcessOptions& options = {}) {
    static int counter = 0;
    base_ = fs::temp_directory_path() /
            ("duet_io_" + std::to_string(getpid()) + "_" + std::to_string(counter++));
    std::ofstream(base_.string() + ".in", std::ios::binary) << options.input;
    std::vector<std::string> words = {options.program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string in = base_.string() + ".in", out = base_.string() + ".out",
                      err = base_.string() + ".err";
    pid_ = fork();
    if (pid_ != 0) return;
    const auto redirect = [](const std::string& path, int flags, int fd) {
      const int opened = open(path.c_str(), flags, 0600);
      dup2(opened, fd);
      close(opened);
    };
    redirect(in, O_RDONLY, 0);
    redirect(out, O_WRONLY | O_CREAT | O_TRUNC, 1);
    redirect(err, O_WRONLY | O_CREAT | O_TRUNC, 2);
    for (const std::string& entry : options.environment) putenv(const_cast<char*>(entry.c_str()));
    if (chdir(directory.c_str()) != 0) _exit(99);
    if (options.child) options.child();
    execv(options.file.c_str(), argv.data());
    _exit(98);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (running_) {
      kill(pid_, SIGKILL);
      wait();
    }
    for (const char* end : {".in", ".out", ".err"}) fs::remove(base_.string() + end);
  }

  void signal(int number) const { kill(pid_, number); }
  std::string out() const { return read_all(base_.string() + ".out"); }
  // Waits until `there()`; false when the process ended without it.
  bool wait_until(const std::function<bool()>& there) {
    while (!there()) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        status_ = status;
        running_ = false;
        return there();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
  // The same for standard output that holds `text`.
  bool wait_for(const std::string& text) {
    return wait_until([&] { return out().find(text) != std::string::npos; });
  }
  Ended wait() {
    rusage usage{};
    if (running_) wait4(pid_, &status_, 0, &usage);
    running_ = false;
    const int code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 1000 + WTERMSIG(status_);
    return {code, out(), read_all(base_.string() + ".err"),
            static_cast<std::uint64_t>(usage.ru_maxrss) * 1024};
  }

 private:
  fs::path base_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool running_ = true;
};

// Every file below a directory with its bytes: equal before and after means that nothing changed.
inline std::map<std::string, std::string> snapshot(const fs::path& directory) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    out[fs::relative(entry.path(), directory).string()] =
        entry.is_regular_file() ? read_all(entry.path()) : "(no file)";
  }
  return out;
}

// A fresh directory with text.txt in it.
class CommandTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    directory_ = fs::temp_directory_path() /
                 ("duet_command_" + std::string(info->name()) + "_" + std::to_string(getpid()));
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    std::string text;
    for (int i = 0; i < 120; ++i) {
      text += "Line " + std::to_string(i) + ": the quick brown fox, " + std::to_string(i * 7 % 31) +
              " lazy dogs and a caf\xC3\xA9.\n";
    }
    write("text.txt", text);
  }
  void TearDown() override { fs::remove_all(directory_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ / name, std::ios::binary) << text;
  }
  Ended duet(const std::vector<std::string>& arguments, const ProcessOptions& options = {}) const {
    return Process(directory_, arguments, options).wait();
  }
  // A training command with settings that take a second, and what else is said.
  static std::vector<std::string> training(const std::string& out_dir,
                                           const std::vector<std::string>& more = {}) {
    std::vector<std::string> out = {
        "train", "--data",          "text.txt", "--out_dir",      out_dir, "--max_iters",
        "30",    "--batch_size",    "2",        "--block_size",   "16",    "--n_embd",
        "16",    "--n_head",        "2",        "--n_layer",      "2",     "--eval_iters",
        "2",     "--eval_interval", "10",       "--log_interval", "5",     "--learning_rate",
        "3e-3"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }

  fs::path directory_;
};

}  // namespace duet::test
