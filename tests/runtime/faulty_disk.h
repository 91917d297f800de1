// A disk that fails at the n-th call, in one of several ways.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/system_calls.h"

namespace duet::test {

// Nothing is synced for real: the tests are many, and power_cut.h tells what a cut leaves.
inline SystemCalls& unsynced_disk() {
  class UnsyncedDisk final : public SystemCalls {
    int fsync(int) override { return 0; }
  };
  static UnsyncedDisk disk;
  return disk;
}

class FaultyDisk final : public SystemCalls {
 public:
  enum class Mode : std::uint8_t {
    none,         // counts calls
    kill,         // the n-th call throws Killed, and from there on nothing changes any more
    no_space,     // the n-th call fails with ENOSPC; a write stores half of its bytes before that
    quota,        // with EDQUOT, and so does every later one that needs room
    io_error,     // with EIO
    interrupted,  // with EINTR
    short_write,  // the n-th write stores half of its bytes
    stutter,      // all writes are short, and every other one is interrupted first
  };
  struct Killed {};  // no std::exception: what handles errors does not see it

  // `disk` does what does not fail.
  explicit FaultyDisk(SystemCalls& disk = unsynced_disk()) : disk_(disk) {}

  Mode mode = Mode::none;
  std::int64_t at = 0;     // which call, from 1
  bool reads = false;      // calls that only read count too
  std::int64_t calls = 0;  // so far
  bool killed = false;
  std::string failed_call;  // the name of the call that was made to fail

  int openat(int directory, const char* path, int flags, mode_t permissions) override {
    const bool writes = (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0;
    const bool creates = (flags & O_CREAT) != 0;
    if (due(writes ? "open" : "open for reading", creates ? kGrows : writes ? kChanges : kReads)) {
      return -1;
    }
    const int fd = disk_.openat(directory, path, flags, permissions);
    if (fd >= 0 && writes) written_.insert(fd);
    return fd;
  }
  ssize_t write(int fd, const void* data, std::size_t bytes) override {
    const bool cut = std::exchange(full_, false);  // the second half on a full disk
    if (cut) errno = ENOSPC;
    if (cut || due("write", kGrows)) {
      const int error = errno;
      const bool half = mode == Mode::kill || mode == Mode::no_space || mode == Mode::short_write;
      const bool stores = half && !cut && !killed && bytes > 1;
      const ssize_t n = stores ? disk_.write(fd, data, bytes / 2) : -1;
      if (mode == Mode::kill && !killed) die();
      full_ = mode == Mode::no_space && n > 0;
      errno = error;
      return n;
    }
    if (mode == Mode::stutter) {
      if ((stutters_ = !stutters_)) {
        errno = EINTR;
        return -1;
      }
      bytes = std::min<std::size_t>(bytes, 100);
    }
    return disk_.write(fd, data, bytes);
  }
  ssize_t pread(int fd, void* data, std::size_t bytes, off_t offset) override {
    return due("pread", kReads) ? -1 : disk_.pread(fd, data, bytes, offset);
  }
  int fsync(int fd) override { return due("fsync", kChanges) ? -1 : disk_.fsync(fd); }
  int ftruncate(int fd, off_t size) override {
    return due("ftruncate", kChanges) ? -1 : disk_.ftruncate(fd, size);
  }
  int close(int fd) override {
    const bool fails = written_.erase(fd) > 0 && mode != Mode::kill && due("close", kChanges);
    const int result = disk_.close(fd);
    return fails ? -1 : result;
  }
  int rename(int directory, const char* from, const char* to) override {
    return due("rename", kChanges) ? -1 : disk_.rename(directory, from, to);
  }
  int mkdir(int directory, const char* path, mode_t permissions) override {
    return due("mkdir", kGrows) ? -1 : disk_.mkdir(directory, path, permissions);
  }
  int unlinkat(int directory, const char* path, int flags) override {
    return due("unlink", kChanges) ? -1 : disk_.unlinkat(directory, path, flags);
  }
  int flock(int fd, int operation) override {
    return due("flock", kReads) ? -1 : disk_.flock(fd, operation);
  }
  std::int64_t free_space(const char* path) override {
    return due("statvfs", kReads) ? -1 : disk_.free_space(path);
  }

 private:
  enum Effect : std::uint8_t { kReads, kChanges, kGrows };  // on the files

  // True if the call must not do what it is for; errno says why.
  bool due(const char* call, Effect effect) {
    if (killed) {
      errno = EIO;
      return effect != kReads;
    }
    const bool over_quota = mode == Mode::quota && calls >= at && at > 0 && effect == kGrows;
    if (effect == kReads && !reads) return false;
    const bool write = std::string_view(call) == "write";
    if (mode == Mode::short_write && !write) return false;
    ++calls;
    if (over_quota || (mode != Mode::none && mode != Mode::stutter && calls == at)) {
      if (calls == at) failed_call = call;
      errno = error();
      if (mode == Mode::kill && !write) die();
      return true;
    }
    return false;
  }
  [[noreturn]] void die() {
    killed = true;
    throw Killed{};
  }
  int error() const {
    switch (mode) {
      case Mode::no_space:
        return ENOSPC;
      case Mode::quota:
        return EDQUOT;
      case Mode::interrupted:
        return EINTR;
      default:
        return EIO;
    }
  }

  SystemCalls& disk_;
  std::set<int> written_;  // descriptors opened for writing
  bool stutters_ = false;
  bool full_ = false;  // the write before this one ended half-way
};

}  // namespace duet::test
