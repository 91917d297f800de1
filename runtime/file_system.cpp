#include "runtime/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "runtime/file_error.h"

namespace duet {
namespace {

constexpr std::int64_t kMaxOwnerBytes = 4096;  // of a lock file, echoed in a message

struct stat status_of(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw_file_error(ErrorKind::io, path, "look at", errno);
  return info;
}

void check_regular(const struct stat& info, const std::string& path) {
  if (S_ISREG(info.st_mode)) return;
  const char* kind = S_ISDIR(info.st_mode)    ? "a directory"
                     : S_ISFIFO(info.st_mode) ? "a pipe (FIFO)"
                     : S_ISSOCK(info.st_mode) ? "a socket"
                                              : "a device";
  throw Error(ErrorKind::file, concat(printable(path, 400), ": not a regular file: got ", kind,
                                      ", expected a file; give the path of a file on a disk"));
}

// The names in an open directory, without "." and "..", sorted.
std::vector<std::string> names_in(int fd, const std::string& path) {
  const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);  // closedir() closes what it was given
  DIR* raw = own >= 0 ? ::fdopendir(own) : nullptr;
  if (raw == nullptr) {
    const int error = errno;
    if (own >= 0) ::close(own);
    throw_file_error(ErrorKind::io, path, "list", error);
  }
  const auto close_directory = [](DIR* d) { ::closedir(d); };
  const std::unique_ptr<DIR, decltype(close_directory)> directory(raw, close_directory);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(raw)) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
    errno = 0;
  }
  if (errno != 0) throw_file_error(ErrorKind::io, path, "list", errno);
  std::sort(names.begin(), names.end());
  return names;
}

std::string parent_of(const std::string& path) {
  const std::size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path.empty() ? "." : "/";
  const std::size_t slash = path.find_last_of('/', end);
  if (slash == std::string::npos) return ".";
  const std::size_t last = path.find_last_not_of('/', slash);
  return last == std::string::npos ? "/" : path.substr(0, last + 1);
}

// An opened descriptor, or the error with its kind.
FileHandle open_handle(SystemCalls& calls, const std::string& path, int flags, ErrorKind kind,
                       const char* action) {
  check(path.find('\0') == std::string::npos, ErrorKind::file, printable(path, 400),
        ": the path holds a NUL byte; check the path");
  const int fd = retry_interrupted(
      [&] { return calls.openat(AT_FDCWD, path.c_str(), flags | O_CLOEXEC, 0666); });
  if (fd < 0) throw_file_error(kind, path, action, errno);
  return {&calls, fd, path};
}

}  // namespace

FileReader FileSystem::open(const std::string& path) const {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0)
    check_regular(info, path);  // opening a device may act on it
  FileHandle handle = open_handle(*calls_, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, ErrorKind::file,
                                  "open for reading");
  info = status_of(handle.fd(), path);
  check_regular(info, path);
  return {std::move(handle), info.st_size};
}

std::string FileSystem::read_file(const std::string& path, std::int64_t max_bytes) const {
  const FileReader file = open(path);
  check(file.size() <= max_bytes, ErrorKind::file, printable(path, 400),
        ": the file is too long: got ", file.size(), " bytes, expected at most ", max_bytes,
        "; check that it is the right file");
  return file.head(file.size());
}

FileWriter FileSystem::create(const std::string& path, WriteMode mode) const {
  const int extra = mode == WriteMode::create_new  ? O_EXCL
                    : mode == WriteMode::overwrite ? O_TRUNC
                                                   : O_APPEND;
  // O_NONBLOCK: a FIFO without a reader is refused instead of waited for.
  FileHandle handle = open_handle(*calls_, path, O_WRONLY | O_CREAT | O_NOCTTY | O_NONBLOCK | extra,
                                  ErrorKind::io, "open for writing");
  return FileWriter(std::move(handle));
}

void FileSystem::replace_file(const std::string& path, std::string_view text) const {
  const std::string temporary = path + ".tmp";
  try {
    FileWriter out = create(temporary, WriteMode::overwrite);
    out.write(text);
    out.sync();
    out.close();
    rename(temporary, path);
  } catch (const Error&) {
    calls_->unlinkat(AT_FDCWD, temporary.c_str(), 0);  // the first error is the one to tell
    throw;
  }
  sync_directory(parent_of(path));
}

void FileSystem::truncate_file(const std::string& path, std::int64_t size) const {
  const FileHandle handle = open_handle(*calls_, path, O_WRONLY, ErrorKind::io, "open for writing");
  const bool ok = retry_interrupted([&] { return calls_->ftruncate(handle.fd(), size); }) == 0 &&
                  retry_interrupted([&] { return calls_->fsync(handle.fd()); }) == 0;
  if (!ok) throw_file_error(ErrorKind::io, path, concat("cut to ", size, " bytes"), errno);
}

FileType FileSystem::type(const std::string& path) const {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return FileType::missing;
    throw_file_error(ErrorKind::file, path, "look at", errno);
  }
  return S_ISREG(info.st_mode)   ? FileType::regular
         : S_ISDIR(info.st_mode) ? FileType::directory
         : S_ISLNK(info.st_mode) ? FileType::symlink
                                 : FileType::other;
}

bool FileSystem::exists(const std::string& path) const {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

bool FileSystem::is_directory(const std::string& path) const {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::int64_t FileSystem::file_size(const std::string& path) const {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) throw_file_error(ErrorKind::file, path, "look at", errno);
  return info.st_size;
}

void FileSystem::rename(const std::string& from, const std::string& to) const {
  if (calls_->rename(from.c_str(), to.c_str()) != 0) {
    throw_file_error(ErrorKind::io, from, concat("rename to ", printable(to, 400)), errno);
  }
}

void FileSystem::remove_file(const std::string& path) const {
  if (calls_->unlinkat(AT_FDCWD, path.c_str(), 0) != 0) {
    throw_file_error(ErrorKind::io, path, "remove", errno);
  }
}

// Works on descriptors: a directory swapped for a symlink in between is not followed.
void FileSystem::remove_entries(FileHandle directory) const {
  for (const std::string& name : names_in(directory.fd(), directory.path())) {
    const std::string path = directory.path() + "/" + name;
    struct stat info {};
    if (::fstatat(directory.fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      throw_file_error(ErrorKind::io, path, "look at", errno);
    }
    const bool is_dir = S_ISDIR(info.st_mode);
    if (is_dir) {
      const int fd = calls_->openat(directory.fd(), name.c_str(),
                                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
      if (fd < 0) throw_file_error(ErrorKind::io, path, "open for removal", errno);
      remove_entries({calls_, fd, path});
    }
    if (calls_->unlinkat(directory.fd(), name.c_str(), is_dir ? AT_REMOVEDIR : 0) != 0) {
      throw_file_error(ErrorKind::io, path, "remove", errno);
    }
  }
}

void FileSystem::remove_tree(const std::string& path) const {
  remove_entries(open_handle(*calls_, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, ErrorKind::io,
                             "open for removal"));
  remove_directory(path);
}

void FileSystem::make_directory(const std::string& path) const {
  if (calls_->mkdir(path.c_str(), 0777) != 0) {
    throw_file_error(ErrorKind::io, path, "make the directory", errno);
  }
}

std::vector<std::string> FileSystem::make_directories(const std::string& path) const {
  std::vector<std::string> made;
  if (is_directory(path)) return made;
  const std::string parent = parent_of(path);
  if (parent != path && !is_directory(parent)) made = make_directories(parent);
  if (calls_->mkdir(path.c_str(), 0777) != 0) {
    const int error = errno;
    if (error == EEXIST && is_directory(path)) return made;  // another process made it meanwhile
    check(error != EEXIST, ErrorKind::io, printable(path, 400),
          ": cannot make the directory: got a file of this name, expected a directory or nothing; "
          "choose another directory (for a run: another out_dir)");
    throw_file_error(ErrorKind::io, path, "make the directory", error);
  }
  made.push_back(path);
  return made;
}

void FileSystem::remove_directory(const std::string& path) const {
  if (calls_->unlinkat(AT_FDCWD, path.c_str(), AT_REMOVEDIR) != 0) {
    throw_file_error(ErrorKind::io, path, "remove the directory", errno);
  }
}

std::vector<std::string> FileSystem::list_directory(const std::string& path) const {
  const FileHandle handle =
      open_handle(*calls_, path, O_RDONLY | O_DIRECTORY, ErrorKind::file, "list");
  return names_in(handle.fd(), path);
}

void FileSystem::sync_directory(const std::string& path) const {
  const FileHandle handle =
      open_handle(*calls_, path, O_RDONLY | O_DIRECTORY, ErrorKind::io, "open the directory");
  if (retry_interrupted([&] { return calls_->fsync(handle.fd()); }) != 0) {
    throw_file_error(ErrorKind::io, path, "bring the directory to the disk (fsync)", errno);
  }
}

std::int64_t FileSystem::free_space(const std::string& path) const {
  std::string existing = path;
  while (!exists(existing) && existing != "." && existing != "/") existing = parent_of(existing);
  const std::int64_t bytes = calls_->free_space(existing.c_str());
  if (bytes < 0) throw_file_error(ErrorKind::io, existing, "ask for free space", errno);
  return bytes;
}

LockAttempt FileSystem::try_lock(const std::string& path, std::string_view owner) const {
  FileHandle handle = open_handle(*calls_, path, O_RDWR | O_CREAT | O_NOCTTY | O_NONBLOCK,
                                  ErrorKind::io, "open the lock file");
  check_regular(status_of(handle.fd(), path), path);
  if (retry_interrupted([&] { return calls_->flock(handle.fd(), LOCK_EX | LOCK_NB); }) != 0) {
    if (errno != EWOULDBLOCK) throw_file_error(ErrorKind::io, path, "lock", errno);
    const std::int64_t size = status_of(handle.fd(), path).st_size;
    return {std::nullopt, FileReader(std::move(handle), size).head(kMaxOwnerBytes)};
  }
  // Its holder removed it between our opening and locking: the path names another file, or none.
  if (status_of(handle.fd(), path).st_nlink == 0) return try_lock(path, owner);
  if (retry_interrupted([&] { return calls_->ftruncate(handle.fd(), 0); }) != 0) {
    throw_file_error(ErrorKind::io, path, "clear the lock file", errno);
  }
  // The writer borrows the descriptor: the lock lives on in the handle that is returned.
  FileWriter writer(FileHandle(calls_, ::fcntl(handle.fd(), F_DUPFD_CLOEXEC, 0), path));
  writer.write(owner);
  return {std::move(handle), ""};
}

namespace {

FileSystem*& current_file_system() {
  static SystemCalls calls;
  static FileSystem real(calls);
  static FileSystem* current = &real;
  return current;
}

}  // namespace

FileSystem& file_system() { return *current_file_system(); }

FileSystemOverride::FileSystemOverride(FileSystem& replacement)
    : previous_(std::exchange(current_file_system(), &replacement)) {}
FileSystemOverride::~FileSystemOverride() { current_file_system() = previous_; }

}  // namespace duet
