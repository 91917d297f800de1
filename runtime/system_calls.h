// SystemCalls: the seam between Duet and the operating system's files. Every call that can lose
// data is virtual, so that a test can make the n-th one fail, write short, or pretend a crash.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace duet {

// Each function is the POSIX call of its name: -1 and errno on failure. `directory` is a
// directory's descriptor or AT_FDCWD.
class SystemCalls {
 public:
  SystemCalls() = default;
  SystemCalls(const SystemCalls&) = delete;
  SystemCalls& operator=(const SystemCalls&) = delete;
  virtual ~SystemCalls() = default;

  virtual int openat(int directory, const char* path, int flags, mode_t mode);
  virtual ssize_t write(int fd, const void* data, std::size_t bytes);
  virtual ssize_t pread(int fd, void* data, std::size_t bytes, off_t offset);
  virtual int fsync(int fd);
  virtual int ftruncate(int fd, off_t size);
  virtual int close(int fd);
  virtual int rename(int directory, const char* from, const char* to);  // renameat() within one
  virtual int mkdir(int directory, const char* path, mode_t mode);      // mkdirat()
  virtual int unlinkat(int directory, const char* path, int flags);
  virtual int flock(int fd, int operation);
  // Bytes an unprivileged user may still write beside `path`; -1 on failure.
  virtual std::int64_t free_space(const char* path);
};

// All of `text` to an open stream (a terminal, a pipe): 0, or the errno that stopped it. Files go
// through FileSystem.
int write_stream(int fd, std::string_view text);

}  // namespace duet
