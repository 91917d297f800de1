// FileSystem: how Duet reads and writes files. Every return value is checked, every loop survives
// short writes and signals, every failure is an Error naming the path, the cause and what to do.
//
//   const FileSystem run = file_system().directory("run");
//   FileWriter out = run.create("notes.tmp");
//   out.write("hello\n");
//   out.sync();
//   out.close();
//   run.rename("notes.tmp", "notes");
//   run.sync_directory(".");
//
// A fault in an input (missing, not a regular file, no permission) is Error(file); a read or write
// that the system refuses is Error(io). runtime/file_error.h decides by errno.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/error.h"
#include "runtime/printable.h"
#include "runtime/system_calls.h"

namespace duet {

// What a file is whose first bytes belong to another format, and how to get at its contents.
struct Magic {
  std::string_view what;    // "a gzip file"
  std::string_view advice;  // "decompress it first (gunzip)"
};
// gzip, zip, pickle, Git LFS pointer, HTML, UTF-16 and the like; nothing for unknown bytes. A few
// hundred bytes are enough. Ask only after the expected format failed: a valid file of another kind
// may begin with any bytes.
std::optional<Magic> describe_magic(std::string_view bytes);
// A beginning of plain text, 8 bytes or more: no control bytes but white space, none that UTF-8
// never has.
bool looks_like_text(std::string_view bytes);

// An open descriptor, closed with its owner.
class FileHandle {
 public:
  FileHandle() = default;
  FileHandle(SystemCalls* calls, int fd, std::string path)
      : calls_(calls), fd_(fd), path_(std::move(path)) {}
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle();

  int fd() const { return fd_; }
  SystemCalls& calls() const { return *calls_; }
  const std::string& path() const { return path_; }
  int release();  // the descriptor, now the caller's to close

 private:
  SystemCalls* calls_ = nullptr;
  int fd_ = -1;
  std::string path_;
};

// A file being written. Dropped without close(), it is closed but may lack bytes on the disk.
class FileWriter {
 public:
  explicit FileWriter(FileHandle handle) : handle_(std::move(handle)) {}
  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void sync();                                        // returns once the bytes are on the disk
  void close();                                       // reports the errors that only close() tells
  std::uint64_t written() const { return written_; }  // bytes since it was opened
  int fd() const { return handle_.fd(); }             // for a child process to write to
  const std::string& path() const { return handle_.path(); }

 private:
  FileHandle handle_;
  std::uint64_t written_ = 0;
};

// A regular file opened for reading at offsets; its size is that at opening.
class FileReader {
 public:
  FileReader(FileHandle handle, std::int64_t size) : handle_(std::move(handle)), size_(size) {}
  std::int64_t size() const { return size_; }
  const std::string& path() const { return handle_.path(); }
  // Exactly `bytes` bytes from `offset`. Throws Error(file) if the file ends before them.
  void read(std::int64_t offset, void* data, std::int64_t bytes) const;
  // Changes when somebody writes to the file: its size and the time of its last change now.
  struct Stamp {
    std::int64_t size = 0, seconds = 0, nanoseconds = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  Stamp stamp() const;
  // The first bytes, at most `limit`: food for describe_magic().
  std::string head(std::int64_t limit = 512) const;

 private:
  FileHandle handle_;
  std::int64_t size_;
};

// Held until dropped; the kernel drops it too when the process dies.
using FileLock = FileHandle;
struct LockAttempt {
  std::optional<FileLock> lock;  // set if the lock is ours
  std::string holder;            // else what its holder wrote into the file
};

enum class FileType : std::uint8_t { missing, regular, directory, symlink, other };
enum class WriteMode : std::uint8_t { create_new, append };
enum class Links : std::uint8_t { follow, refuse };  // at the last part of a path

// Which file a path leads to, through links: equal for two paths of one file.
struct FileId {
  std::uint64_t device = 0, inode = 0;
  friend bool operator==(const FileId&, const FileId&) = default;
};

// Stands between a file's name and random digits in the name of what will replace it.
inline constexpr std::string_view kTemporaryMark = ".tmp-";

// A name inside a directory: one part of a path, neither empty nor "." nor "..".
bool is_file_name(std::string_view name);
// Sixteen hexadecimal digits that nobody can foresee, for a name beside a file of ours.
std::string random_digits();

class FileSystem {
 public:
  explicit FileSystem(SystemCalls& calls) : calls_(&calls) {}

  // The same functions inside a directory of ours, which stays open: a path is a name there (or "."
  // where a directory is asked for) and no link is followed, so nothing outside can be reached.
  FileSystem directory(const std::string& path, Links links = Links::refuse) const;

  // Refuses to wait for a FIFO or to read a device or a directory.
  FileReader open(const std::string& path) const;
  // The whole file. Throws Error(file) if it is longer than `max_bytes`.
  std::string read_file(const std::string& path, std::int64_t max_bytes) const;
  // A file of ours: refuses a link and whatever else is no regular file.
  FileWriter create(const std::string& path, WriteMode mode = WriteMode::create_new) const;
  // A file of a known kind, made if missing and otherwise written anew. Throws Error(usage) for a
  // regular file that begins as none of `begins`, unless it is empty or holds nothing but zeros; a
  // device is taken as it is.
  FileWriter overwrite(const std::string& path, std::span<const std::string_view> begins,
                       Links links) const;
  // The check of overwrite() by itself; fine if there is no file.
  void check_begins(const std::string& path, std::span<const std::string_view> begins) const;
  // The file holds `text` or what it held before, whatever happens in between; on the disk at
  // return.
  void replace_file(const std::string& path, std::string_view text) const;
  void truncate_file(const std::string& path, std::int64_t size) const;

  FileType type(const std::string& path) const;             // of a symlink itself
  std::optional<FileId> id(const std::string& path) const;  // nothing if it is missing
  bool exists(const std::string& path) const;               // follows symlinks
  bool is_directory(const std::string& path) const;
  std::int64_t file_size(const std::string& path) const;

  void rename(const std::string& from, const std::string& to) const;
  void remove_file(const std::string& path) const;
  // Removes a directory and all in it; symlinks inside are removed, never followed. Throws
  // Error(io) if `path` is itself a symlink or no directory.
  void remove_tree(const std::string& path) const;
  void make_directory(const std::string& path) const;  // throws if it exists
  // With parents, each on the disk at return; fine if it exists. Returns those that were made,
  // outermost first.
  std::vector<std::string> make_directories(const std::string& path) const;
  void remove_directory(const std::string& path) const;  // throws unless it is empty
  std::vector<std::string> list_directory(const std::string& path) const;  // names, sorted
  void sync_directory(const std::string& path) const;
  // Bytes free where `path` is or will be.
  std::int64_t free_space(const std::string& path) const;
  // Takes an exclusive lock on `path` (made if missing) and writes `owner` into it, or tells who
  // holds it. The holder may remove the file: who waits for it then makes a new one. Throws
  // Error(usage) for a file that holds something else than the name of a process: "pid ".
  LockAttempt try_lock(const std::string& path, std::string_view owner) const;

 private:
  void remove_entries(FileHandle directory) const;
  FileHandle open_handle(const std::string& path, int flags, ErrorKind kind,
                         const char* action) const;
  int base() const;
  std::string shown(const std::string& path) const;  // for messages

  SystemCalls* calls_;
  std::shared_ptr<const FileHandle> base_;  // null: where the process is
};

// The process's file system.
FileSystem& file_system();

// Replaces it until the end of the C++ block, for tests.
class FileSystemOverride {
 public:
  explicit FileSystemOverride(FileSystem& replacement);
  ~FileSystemOverride();
  FileSystemOverride(const FileSystemOverride&) = delete;
  FileSystemOverride& operator=(const FileSystemOverride&) = delete;

 private:
  FileSystem* previous_;
};

}  // namespace duet
