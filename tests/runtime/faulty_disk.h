// A disk that fails: the n-th call that changes anything, in one of several ways. What was written
// and not synced is torn when the machine "loses power".
#pragma once

#include <fcntl.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/file_system.h"
#include "runtime/system_calls.h"

namespace duet::test {

class FaultyDisk final : public SystemCalls {
 public:
  enum class Mode : std::uint8_t {
    none,      // counts calls
    crash,     // from the n-th call on nothing happens any more
    no_space,  // the n-th call fails with ENOSPC, later ones work
    io_error,  // with EIO
    stutter,   // writes are short, and every other one is interrupted first
  };
  Mode mode = Mode::none;
  std::int64_t at = 0;     // which call, from 1
  std::int64_t calls = 0;  // so far
  bool crashed = false;
  std::string failed_call;  // the name of the call that was made to fail

  int openat(int directory, const char* path, int flags, mode_t permissions) override {
    const bool writes = (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0;
    if (writes && due("open")) return -1;
    const int fd = SystemCalls::openat(directory, path, flags, permissions);
    if (fd >= 0 && writes) open_files_[fd] = path;
    if (fd >= 0 && (flags & O_DIRECTORY) != 0) open_directories_[fd] = path;
    return fd;
  }
  ssize_t write(int fd, const void* data, std::size_t bytes) override {
    if (due("write")) return -1;
    if (mode == Mode::stutter) {
      if ((stutters_ = !stutters_)) {
        errno = EINTR;
        return -1;
      }
      bytes = std::min<std::size_t>(bytes, 100);
    }
    if (const auto f = open_files_.find(fd); f != open_files_.end()) unsynced_.insert(f->second);
    return SystemCalls::write(fd, data, bytes);
  }
  int fsync(int fd) override {  // remembered rather than done: the tests are many
    if (due("fsync")) return -1;
    if (const auto f = open_files_.find(fd); f != open_files_.end()) unsynced_.erase(f->second);
    if (const auto d = open_directories_.find(fd); d != open_directories_.end()) {
      std::erase_if(renames_, [&](const auto& r) {
        return std::filesystem::path(r.second).parent_path() == d->second;
      });
    }
    return 0;
  }
  int ftruncate(int fd, off_t size) override {
    return due("ftruncate") ? -1 : SystemCalls::ftruncate(fd, size);
  }
  int close(int fd) override {
    const bool written = open_files_.erase(fd) > 0;
    open_directories_.erase(fd);
    const bool fails = written && due("close");
    const int result = SystemCalls::close(fd);
    return fails ? -1 : result;
  }
  int rename(const char* from, const char* to) override {
    if (due("rename")) return -1;
    const int result = SystemCalls::rename(from, to);
    if (result == 0) renames_.emplace_back(from, to);
    return result;
  }
  int mkdir(const char* path, mode_t permissions) override {
    return due("mkdir") ? -1 : SystemCalls::mkdir(path, permissions);
  }
  int unlinkat(int directory, const char* path, int flags) override {
    return due("unlink") ? -1 : SystemCalls::unlinkat(directory, path, flags);
  }

  // What a power cut leaves: renames whose directory was not synced are undone, files that were not
  // synced keep half their bytes.
  void lose_power() {
    std::error_code ignored;
    for (auto r = renames_.rbegin(); r != renames_.rend(); ++r) {
      std::filesystem::rename(r->second, r->first, ignored);
    }
    for (const std::string& path : unsynced_) {
      const auto size = std::filesystem::file_size(path, ignored);
      if (!ignored) std::filesystem::resize_file(path, size / 2, ignored);
    }
  }

 private:
  bool due(const char* call) {
    ++calls;
    if (crashed || (mode != Mode::none && mode != Mode::stutter && calls == at)) {
      if (!crashed) failed_call = call;
      crashed = crashed || mode == Mode::crash;
      errno = mode == Mode::no_space ? ENOSPC : EIO;
      return true;
    }
    return false;
  }

  std::map<int, std::string> open_files_, open_directories_;
  std::set<std::string> unsynced_;
  std::vector<std::pair<std::string, std::string>> renames_;
  bool stutters_ = false;
};

}  // namespace duet::test
