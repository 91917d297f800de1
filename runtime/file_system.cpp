#include "runtime/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "runtime/file_error.h"

namespace duet {

bool is_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

namespace {

constexpr std::int64_t kMaxOwnerBytes = 4096;      // of a lock file, echoed in a message
constexpr std::string_view kOwnerBegins = "pid ";  // every lock file of ours

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
                     : S_ISLNK(info.st_mode)  ? "a symbolic link"
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

// Where a name in a directory of ours is expected, a longer path is refused: a file may have named
// it.
void check_name(int base, const std::string& path, const std::string& shown) {
  check(base == AT_FDCWD || path == "." || is_file_name(path), ErrorKind::file,
        printable(shown, 400), ": not a name in this directory: got ", in_quotes(path),
        ", expected one without /; the file that named it was changed");
}

// The status of the file at a path, or nothing; `follow` is for the last part of the path.
std::optional<struct stat> look_at(int base, const std::string& path, const std::string& shown,
                                   bool follow) {
  check_name(base, path, shown);
  struct stat info {};
  if (::fstatat(base, path.c_str(), &info, follow ? 0 : AT_SYMLINK_NOFOLLOW) == 0) return info;
  if (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG) return std::nullopt;
  throw_file_error(ErrorKind::file, shown, "look at", errno);
}

}  // namespace

std::string random_digits() {
  std::random_device device;
  std::string out;
  while (out.size() < 16) out += "0123456789abcdef"[device() & 15U];
  return out;
}

int FileSystem::base() const { return base_ == nullptr ? AT_FDCWD : base_->fd(); }

std::string FileSystem::shown(const std::string& path) const {
  if (base_ == nullptr) return path;
  return path == "." ? base_->path() : base_->path() + "/" + path;
}

FileSystem FileSystem::directory(const std::string& path, Links links) const {
  if (links == Links::refuse || base_ != nullptr) {
    check(type(path) != FileType::symlink, ErrorKind::io, printable(shown(path), 400),
          ": not a directory of duet's own: got a symbolic link, expected a directory; move the "
          "link away");
  }
  const int flags = O_RDONLY | O_DIRECTORY | (links == Links::refuse ? O_NOFOLLOW : 0);
  FileSystem inside(*calls_);
  inside.base_ = std::make_shared<const FileHandle>(
      open_handle(path, flags, ErrorKind::io, "open the directory"));
  return inside;
}

// An opened descriptor, or the error with its kind. Where a name in a directory of ours is
// expected, a longer path is refused: it may come from a file.
FileHandle FileSystem::open_handle(const std::string& path, int flags, ErrorKind kind,
                                   const char* action) const {
  const std::string where = shown(path);
  check(path.find('\0') == std::string::npos, ErrorKind::file, printable(where, 400),
        ": the path holds a NUL byte; check the path");
  check_name(base(), path, where);
  const int own = base_ == nullptr ? 0 : O_NOFOLLOW;
  const int fd = retry_interrupted([&] {
    return calls_->openat(base(), path.c_str(), flags | own | O_CLOEXEC | O_NOCTTY, 0666);
  });
  if (fd < 0) throw_file_error(kind, where, action, errno);
  return {calls_, fd, where};
}

FileReader FileSystem::open(const std::string& path) const {
  // Looked at first, because opening a device may act on it. What it cannot tell, the open will.
  check_name(base(), path, shown(path));
  struct stat info {};
  if (::fstatat(base(), path.c_str(), &info, base_ == nullptr ? 0 : AT_SYMLINK_NOFOLLOW) == 0) {
    check_regular(info, shown(path));
  }
  FileHandle handle = open_handle(path, O_RDONLY | O_NONBLOCK, ErrorKind::file, "open for reading");
  info = status_of(handle.fd(), handle.path());
  check_regular(info, handle.path());
  return {std::move(handle), info.st_size};
}

std::string FileSystem::read_file(const std::string& path, std::int64_t max_bytes) const {
  const FileReader file = open(path);
  check(file.size() <= max_bytes, ErrorKind::file, printable(file.path(), 400),
        ": the file is too long: got ", file.size(), " bytes, expected at most ", max_bytes,
        "; check that it is the right file");
  return file.head(file.size());
}

FileWriter FileSystem::create(const std::string& path, WriteMode mode) const {
  const bool append = mode == WriteMode::append;
  // A FIFO is refused instead of waited for: here, or, if it comes in between, by O_NONBLOCK.
  const auto there = look_at(base(), path, shown(path), /*follow=*/false);
  if (append && there) check_regular(*there, shown(path));
  FileHandle handle =
      open_handle(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOFOLLOW | (append ? O_APPEND : O_EXCL),
                  ErrorKind::io, "open for writing");
  check_regular(status_of(handle.fd(), handle.path()), handle.path());
  return FileWriter(std::move(handle));
}

void FileSystem::check_begins(const std::string& path,
                              std::span<const std::string_view> begins) const {
  const auto there = look_at(base(), path, shown(path), base_ == nullptr);
  if (!there || !S_ISREG(there->st_mode)) return;
  const std::string head = open(path).head();
  // A power cut leaves less than was written, or zeros.
  const bool zeros = head.find_first_not_of('\0') == std::string::npos;
  const bool ours = std::any_of(begins.begin(), begins.end(), [&](std::string_view begin) {
    return zeros || head.starts_with(begin) || begin.starts_with(head);
  });
  check(ours, ErrorKind::usage, printable(shown(path), 400),
        ": the file holds something else: got ", in_quotes(head.substr(0, 40)),
        ", expected no file, or an older one of the same kind to replace; choose another path, or "
        "move the file away");
}

FileWriter FileSystem::overwrite(const std::string& path, std::span<const std::string_view> begins,
                                 Links links) const {
  check_begins(path, begins);
  const int own = links == Links::refuse ? O_NOFOLLOW : 0;
  FileHandle handle =
      open_handle(path, O_WRONLY | O_CREAT | O_NONBLOCK | own, ErrorKind::io, "open for writing");
  const struct stat info = status_of(handle.fd(), handle.path());
  if (S_ISREG(info.st_mode) && info.st_size > 0) {
    if (retry_interrupted([&] { return calls_->ftruncate(handle.fd(), 0); }) != 0) {
      throw_file_error(ErrorKind::io, handle.path(), "write it anew", errno);
    }
  }
  return FileWriter(std::move(handle));
}

void FileSystem::replace_file(const std::string& path, std::string_view text) const {
  if (base_ == nullptr) {
    const std::size_t slash = path.rfind('/');
    const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
    directory(parent_of(path), Links::follow).replace_file(name, text);
    return;
  }
  const std::string temporary = concat(path, kTemporaryMark, random_digits());
  try {
    FileWriter out = create(temporary);
    out.write(text);
    out.sync();
    out.close();
    rename(temporary, path);
  } catch (const Error&) {
    calls_->unlinkat(base(), temporary.c_str(), 0);  // the first error is the one to tell
    throw;
  }
  sync_directory(".");
}

void FileSystem::truncate_file(const std::string& path, std::int64_t size) const {
  const auto there = look_at(base(), path, shown(path), /*follow=*/false);
  if (there) check_regular(*there, shown(path));
  const FileHandle handle =
      open_handle(path, O_WRONLY | O_NONBLOCK | O_NOFOLLOW, ErrorKind::io, "open for writing");
  const bool ok = retry_interrupted([&] { return calls_->ftruncate(handle.fd(), size); }) == 0 &&
                  retry_interrupted([&] { return calls_->fsync(handle.fd()); }) == 0;
  if (!ok) throw_file_error(ErrorKind::io, handle.path(), concat("cut to ", size, " bytes"), errno);
}

FileType FileSystem::type(const std::string& path) const {
  const auto info = look_at(base(), path, shown(path), /*follow=*/false);
  return !info                    ? FileType::missing
         : S_ISREG(info->st_mode) ? FileType::regular
         : S_ISDIR(info->st_mode) ? FileType::directory
         : S_ISLNK(info->st_mode) ? FileType::symlink
                                  : FileType::other;
}

std::optional<FileId> FileSystem::id(const std::string& path) const {
  const auto info = look_at(base(), path, shown(path), base_ == nullptr);
  return info ? std::optional(FileId{info->st_dev, info->st_ino}) : std::nullopt;
}

bool FileSystem::exists(const std::string& path) const {
  return look_at(base(), path, shown(path), base_ == nullptr).has_value();
}

bool FileSystem::is_directory(const std::string& path) const {
  const auto info = look_at(base(), path, shown(path), base_ == nullptr);
  return info && S_ISDIR(info->st_mode);
}

std::int64_t FileSystem::file_size(const std::string& path) const {
  const auto info = look_at(base(), path, shown(path), base_ == nullptr);
  if (!info) throw_file_error(ErrorKind::file, shown(path), "look at", ENOENT);
  return info->st_size;
}

void FileSystem::rename(const std::string& from, const std::string& to) const {
  check_name(base(), from, shown(from));
  check_name(base(), to, shown(to));
  if (calls_->rename(base(), from.c_str(), to.c_str()) != 0) {
    throw_file_error(ErrorKind::io, shown(from), concat("rename to ", printable(to, 400)), errno);
  }
}

void FileSystem::remove_file(const std::string& path) const {
  check_name(base(), path, shown(path));
  if (calls_->unlinkat(base(), path.c_str(), 0) != 0) {
    throw_file_error(ErrorKind::io, shown(path), "remove", errno);
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
  remove_entries(
      open_handle(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, ErrorKind::io, "open for removal"));
  remove_directory(path);
}

void FileSystem::make_directory(const std::string& path) const {
  check_name(base(), path, shown(path));
  if (calls_->mkdir(base(), path.c_str(), 0777) != 0) {
    throw_file_error(ErrorKind::io, shown(path), "make the directory", errno);
  }
}

std::vector<std::string> FileSystem::make_directories(const std::string& path) const {
  std::vector<std::string> made;
  if (is_directory(path)) return made;
  const std::string parent = parent_of(path);
  if (parent != path && !is_directory(parent)) made = make_directories(parent);
  try {
    if (calls_->mkdir(base(), path.c_str(), 0777) == 0) {
      made.push_back(path);
      // Files synced below a lost directory are lost, too. A parent without read permission is left
      // out.
      if (::faccessat(base(), parent.c_str(), R_OK, AT_EACCESS) == 0) sync_directory(parent);
      return made;
    }
    const int error = errno;
    if (error == EEXIST && is_directory(path)) return made;  // another process made it meanwhile
    check(error != EEXIST, ErrorKind::io, printable(shown(path), 400),
          ": cannot make the directory: got a file of this name, expected a directory or nothing; "
          "choose another directory (for a run: another out_dir)");
    throw_file_error(ErrorKind::io, shown(path), "make the directory", error);
  } catch (const Error&) {
    for (auto one = made.rbegin(); one != made.rend(); ++one) {
      calls_->unlinkat(base(), one->c_str(), AT_REMOVEDIR);  // the error is the one to tell
    }
    throw;
  }
}

void FileSystem::remove_directory(const std::string& path) const {
  check_name(base(), path, shown(path));
  if (calls_->unlinkat(base(), path.c_str(), AT_REMOVEDIR) != 0) {
    throw_file_error(ErrorKind::io, shown(path), "remove the directory", errno);
  }
}

std::vector<std::string> FileSystem::list_directory(const std::string& path) const {
  const FileHandle handle = open_handle(path, O_RDONLY | O_DIRECTORY, ErrorKind::file, "list");
  return names_in(handle.fd(), handle.path());
}

void FileSystem::sync_directory(const std::string& path) const {
  const FileHandle handle =
      open_handle(path, O_RDONLY | O_DIRECTORY, ErrorKind::io, "open the directory");
  if (retry_interrupted([&] { return calls_->fsync(handle.fd()); }) != 0) {
    throw_file_error(ErrorKind::io, handle.path(), "bring the directory to the disk (fsync)",
                     errno);
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
  const auto there = look_at(base(), path, shown(path), /*follow=*/false);
  if (there) check_regular(*there, shown(path));
  FileHandle handle = open_handle(path, O_RDWR | O_CREAT | O_NONBLOCK | O_NOFOLLOW, ErrorKind::io,
                                  "open the lock file");
  check_regular(status_of(handle.fd(), path), path);
  if (retry_interrupted([&] { return calls_->flock(handle.fd(), LOCK_EX | LOCK_NB); }) != 0) {
    if (errno != EWOULDBLOCK) throw_file_error(ErrorKind::io, path, "lock", errno);
    const std::int64_t size = status_of(handle.fd(), path).st_size;
    return {std::nullopt, FileReader(std::move(handle), size).head(kMaxOwnerBytes)};
  }
  // Its holder removed it between our opening and locking: the path names another file, or none.
  if (status_of(handle.fd(), path).st_nlink == 0) return try_lock(path, owner);
  check_begins(path, {{kOwnerBegins}});
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
