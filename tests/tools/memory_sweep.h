// A training run under a limit of the system: how it may end, and that what it advises runs.
#pragma once

#include <sys/resource.h>

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tools/process.h"

namespace duet::test {

// Called in the child, just before it becomes `duet`.
using Limit = std::function<void()>;

inline Limit ulimit(decltype(RLIMIT_AS) resource, std::uint64_t bytes) {
  return [=] {
    const rlimit both{bytes, bytes};
    setrlimit(resource, &both);
  };
}

// The flags behind "a setting that fits: ", or none.
inline std::vector<std::string> advised_flags(const std::string& message) {
  const std::string head = "a setting that fits: ";
  const std::size_t begin = message.find(head);
  std::vector<std::string> flags;
  if (begin == std::string::npos) return flags;
  std::istringstream words(message.substr(begin + head.size()));
  for (std::string word; words >> word && word.front() != '(';) flags.push_back(word);
  return flags;
}

// A control group for memory below the test's own, where this machine lets one be made.
class MemoryGroup {
 public:
  static std::optional<std::string> root() {
    static const std::optional<std::string> found = find();
    return found;
  }
  MemoryGroup(const std::string& name, std::uint64_t bytes)
      : path_(*root() + "/duet_" + name + "_" + std::to_string(getpid())) {
    fs::create_directory(path_);
    put(version_2() ? "memory.max" : "memory.limit_in_bytes", std::to_string(bytes));
  }
  ~MemoryGroup() { rmdir(path_.c_str()); }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;

  Limit limit() const {
    return [procs = path_ + "/cgroup.procs"] {
      const int fd = open(procs.c_str(), O_WRONLY);
      if (fd < 0 || ::write(fd, "0", 1) != 1) _exit(97);
      close(fd);
    };
  }
  bool holds(std::uint64_t bytes) const {
    std::uint64_t set = 0;
    std::ifstream(path_ + (version_2() ? "/memory.max" : "/memory.limit_in_bytes")) >> set;
    return set == bytes;
  }

 private:
  bool version_2() const { return fs::exists(path_ + "/memory.max"); }
  void put(const std::string& file, const std::string& text) const {
    std::ofstream(path_ + "/" + file) << text;
  }
  static std::optional<std::string> find() {
    for (const char* root : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      const std::string trial = std::string(root) + "/duet_trial_" + std::to_string(getpid());
      if (mkdir(trial.c_str(), 0700) != 0) continue;
      const bool usable =
          fs::exists(trial + "/memory.max") || fs::exists(trial + "/memory.limit_in_bytes");
      rmdir(trial.c_str());
      if (usable) return root;
    }
    return std::nullopt;
  }

  std::string path_;
};

}  // namespace duet::test
