// A child process with its output in a file: how the runs of an experiment are kept apart.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace duet {

class ChildProcess {
 public:
  // Runs this program again with other arguments; output is appended to `log`. The child is in a
  // process group of its own, so that a Ctrl-C reaches it through its parent alone, and gets
  // SIGTERM when the parent dies. Throws Error(io) when the system refuses.
  ChildProcess(const std::vector<std::string>& arguments, const std::string& log);
  ChildProcess(ChildProcess&& other) noexcept : pid_(other.pid_), code_(other.code_) {
    other.pid_ = -1;
  }
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();  // ends it with SIGTERM if it still runs, and waits

  // The exit code, or 128 + the signal that killed it, once it has ended.
  std::optional<int> poll();
  void signal(int number) const;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  std::optional<int> code_;
};

}  // namespace duet
