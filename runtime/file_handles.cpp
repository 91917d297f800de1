// The open files of file_system.h: loops over short writes and reads, and the texts of errors.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "runtime/file_error.h"
#include "runtime/file_system.h"

namespace duet {
namespace {

constexpr std::size_t kMaxCall = std::size_t{1} << 30;  // Linux moves at most 2 GiB - 4 KiB a call
constexpr int kMaxWaits = 100;                          // of 100 ms, when the file is busy

std::string_view advice(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free some space (df -h shows it) or choose another directory";
    case EACCES:
    case EPERM:
      return "check the permissions (ls -ld) of the file and its directory";
    case EROFS:
      return "choose a directory on a disk that is not read-only";
    case ENOENT:
      return "check the path";
    case ENOTDIR:
      return "check the path: a part of it is not a directory";
    case ENOMEM:
      return "free some memory, or raise the limit on it";
    case EISDIR:
      return "give the path of a file";
    case EEXIST:
      return "choose another name, or move it away if you no longer need it";
    case ELOOP:
      return "check the symbolic links on the path: they run in a circle, or there is one where a "
             "file of duet's own belongs";
    case ENAMETOOLONG:
      return "use a shorter path";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EIO:
      return "the disk or its connection is failing: check the system log (dmesg)";
    default:
      return "check the path and the disk";
  }
}

// `otherwise` for what the user's path is to blame for.
ErrorKind kind_of(int error, ErrorKind otherwise) {
  switch (error) {
    case ENOMEM:
      return ErrorKind::memory;
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EACCES:
    case EPERM:
    case EINVAL:
    case ENXIO:
    case ENODEV:
      return otherwise;
    default:
      return ErrorKind::io;
  }
}

}  // namespace

bool is_unreadable(const Error& error) {
  return error.kind() == ErrorKind::io || error.kind() == ErrorKind::memory ||
         dynamic_cast<const UnreadableError*>(&error) != nullptr;
}

void throw_file_error(ErrorKind kind, const std::string& path, std::string_view action, int error,
                      std::string_view expected) {
  const std::string text = concat(printable(path, 400), ": cannot ", action, ": got ",
                                  std::generic_category().message(error), " (errno ", error,
                                  "), expected ", expected, "; ", advice(error));
  if (error == ENOSPC || error == EDQUOT) throw NoRoomError(ErrorKind::io, text);
  if (error == EACCES || error == EPERM) throw UnreadableError(kind, text);
  throw Error(kind_of(error, kind), text);
}

FileHandle::FileHandle(FileHandle&& other) noexcept
    : calls_(other.calls_), fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  std::swap(calls_, other.calls_);
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

FileHandle::~FileHandle() {
  if (fd_ >= 0) calls_->close(fd_);
}

int FileHandle::release() { return std::exchange(fd_, -1); }

void FileWriter::write(const void* data, std::size_t bytes) {
  const char* p = static_cast<const char*>(data);
  std::size_t left = bytes;
  int waits = 0;
  while (left > 0) {
    const ssize_t n = handle_.calls().write(handle_.fd(), p, std::min(left, kMaxCall));
    if (n > 0) {
      p += n;
      left -= static_cast<std::size_t>(n);
      written_ += static_cast<std::uint64_t>(n);
      continue;
    }
    const int error = n == 0 ? ENOSPC : errno;
    if (error == EINTR) continue;
    if (error == EAGAIN && ++waits <= kMaxWaits) {
      pollfd ready{handle_.fd(), POLLOUT, 0};
      ::poll(&ready, 1, 100);
      continue;
    }
    throw_file_error(ErrorKind::io, path(), concat("write at byte ", written_), error,
                     concat("room for ", left, " more bytes"));
  }
}

void FileWriter::sync() {
  if (retry_interrupted([&] { return handle_.calls().fsync(handle_.fd()); }) != 0) {
    throw_file_error(ErrorKind::io, path(), "bring its bytes to the disk (fsync)", errno);
  }
}

void FileWriter::close() {
  // After EINTR Linux has closed the descriptor; calling again could close another file's.
  if (handle_.calls().close(handle_.release()) != 0 && errno != EINTR) {
    throw_file_error(ErrorKind::io, path(), "finish writing (close)", errno);
  }
}

void FileReader::read(std::int64_t offset, void* data, std::int64_t bytes) const {
  check(offset >= 0 && bytes >= 0 && bytes <= size_ && offset <= size_ - bytes, ErrorKind::file,
        printable(path(), 400), ": the file is too short: got ", size_, " bytes, expected ", bytes,
        " at byte ", offset, "; the file is cut off: fetch or write it again");
  char* p = static_cast<char*>(data);
  while (bytes > 0) {
    const std::size_t ask = std::min(static_cast<std::size_t>(bytes), kMaxCall);
    const ssize_t n =
        retry_interrupted([&] { return handle_.calls().pread(handle_.fd(), p, ask, offset); });
    if (n < 0) {
      throw_file_error(ErrorKind::io, path(), concat("read at byte ", offset), errno,
                       concat(bytes, " bytes"));
    }
    check(n > 0, ErrorKind::file, printable(path(), 400),
          ": the file shrank while it was read: got no bytes at byte ", offset, ", expected ",
          bytes, "; do not change a file that is in use");
    p += n;
    offset += n;
    bytes -= n;
  }
}

FileReader::Stamp FileReader::stamp() const {
  struct stat info {};
  if (::fstat(handle_.fd(), &info) != 0) {
    throw_file_error(ErrorKind::io, path(), "look at", errno);
  }
  return {info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

std::string FileReader::head(std::int64_t limit) const {
  std::string text(static_cast<std::size_t>(std::min(limit, size_)), '\0');
  read(0, text.data(), static_cast<std::int64_t>(text.size()));
  return text;
}

}  // namespace duet
