#include "runtime/system_calls.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace duet {

int SystemCalls::openat(int directory, const char* path, int flags, mode_t mode) {
  return ::openat(directory, path, flags, mode);
}
ssize_t SystemCalls::write(int fd, const void* data, std::size_t bytes) {
  return ::write(fd, data, bytes);
}
ssize_t SystemCalls::pread(int fd, void* data, std::size_t bytes, off_t offset) {
  return ::pread(fd, data, bytes, offset);
}
int SystemCalls::fsync(int fd) { return ::fsync(fd); }
int SystemCalls::ftruncate(int fd, off_t size) { return ::ftruncate(fd, size); }
int SystemCalls::close(int fd) { return ::close(fd); }
int SystemCalls::rename(int directory, const char* from, const char* to) {
  return ::renameat(directory, from, directory, to);
}
int SystemCalls::mkdir(int directory, const char* path, mode_t mode) {
  return ::mkdirat(directory, path, mode);
}
int SystemCalls::unlinkat(int directory, const char* path, int flags) {
  return ::unlinkat(directory, path, flags);
}
int SystemCalls::flock(int fd, int operation) { return ::flock(fd, operation); }

std::int64_t SystemCalls::free_space(const char* path) {
  struct statvfs info {};
  if (::statvfs(path, &info) != 0) return -1;
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
}

int write_stream(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0 ? EIO : errno;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

}  // namespace duet
