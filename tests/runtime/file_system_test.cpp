// The file system seam: good paths, refusals with their text, and calls that fail or write short.
#include "runtime/file_system.h"

#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "runtime/file_error.h"
#include "runtime/hash.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/temp_directory.h"

namespace duet::test {
namespace {

void write_file(const FileSystem& fs, const std::string& path, std::string_view text) {
  FileWriter out = fs.create(path);
  out.write(text);
  out.sync();
  out.close();
}

TEST(FileSystem, WritesAndReadsBack) {
  const TempDirectory temp;
  FileSystem& fs = file_system();
  const std::string path = temp.file("a name with spaces\nand a line break");
  write_file(fs, path, "hello");
  EXPECT_EQ(fs.read_file(path, 5), "hello");
  EXPECT_EQ(fs.file_size(path), 5);
  char middle[3];
  fs.open(path).read(1, middle, 3);
  EXPECT_EQ(std::string(middle, 3), "ell");

  FileWriter more = fs.create(path, WriteMode::append);
  more.write(" again");
  more.close();
  EXPECT_EQ(read_bytes(path), "hello again");
  EXPECT_EQ(more.written(), 6U);
  fs.truncate_file(path, 4);
  EXPECT_EQ(read_bytes(path), "hell");
  fs.replace_file(path, "new");
  EXPECT_EQ(read_bytes(path), "new");
  EXPECT_EQ(fs.list_directory(temp.path()).size(), 1U);
}

TEST(FileSystem, DirectoriesAndTypes) {
  const TempDirectory temp;
  FileSystem& fs = file_system();
  fs.make_directories(temp.file("x/y/z/"));
  fs.make_directories(temp.file("x/y/z"));
  EXPECT_EQ(fs.type(temp.file("x/y/z")), FileType::directory);
  EXPECT_EQ(fs.type(temp.file("none/at/all")), FileType::missing);
  write_file(fs, temp.file("x/b"), "1");
  write_file(fs, temp.file("x/a"), "2");
  ASSERT_EQ(::symlink(temp.path().c_str(), temp.file("x/link").c_str()), 0);
  EXPECT_EQ(fs.type(temp.file("x/link")), FileType::symlink);
  EXPECT_EQ(fs.list_directory(temp.file("x")), (std::vector<std::string>{"a", "b", "link", "y"}));
  EXPECT_GT(fs.free_space(temp.file("not/yet/there")), 0);
  fs.sync_directory(temp.file("x"));
  fs.rename(temp.file("x/a"), temp.file("x/c"));
  EXPECT_TRUE(fs.exists(temp.file("x/c")));
  expect_in("cannot make the directory: got File exists",
            error_of(ErrorKind::io, [&] { fs.make_directory(temp.file("x")); }));
  expect_in("cannot make the directory",
            error_of(ErrorKind::io, [&] { fs.make_directories(temp.file("x/b/d")); }));
}

TEST(FileSystem, RemoveTreeNeverFollowsSymlinks) {
  const TempDirectory temp;
  FileSystem& fs = file_system();
  fs.make_directories(temp.file("victim"));
  write_file(fs, temp.file("victim/keep"), "precious");
  fs.make_directories(temp.file("tree/deep/deeper"));
  write_file(fs, temp.file("tree/deep/file"), "gone");
  ASSERT_EQ(::symlink(temp.file("victim").c_str(), temp.file("tree/deep/link").c_str()), 0);
  ASSERT_EQ(::symlink(temp.file("victim").c_str(), temp.file("root_link").c_str()), 0);
  fs.remove_tree(temp.file("tree"));
  EXPECT_FALSE(fs.exists(temp.file("tree")));
  EXPECT_EQ(read_bytes(temp.file("victim/keep")), "precious");
  error_of(ErrorKind::io, [&] { fs.remove_tree(temp.file("root_link")); });
  EXPECT_EQ(read_bytes(temp.file("victim/keep")), "precious");
}

// Inputs that are no readable regular file: one clear message, never a hang.
TEST(FileSystem, RefusesWhatIsNoFile) {
  const TempDirectory temp;
  const FileSystem& fs = file_system();
  ASSERT_EQ(::mkfifo(temp.file("fifo").c_str(), 0600), 0);
  ASSERT_EQ(::symlink(temp.file("loop").c_str(), temp.file("loop").c_str()), 0);
  write_bytes(temp.file("plain"), "12345");
  const struct {
    std::string path, text;
  } rows[] = {
      {temp.file("missing"), "cannot open for reading: got No such file or directory (errno 2)"},
      {temp.file("fifo"), "not a regular file: got a pipe (FIFO), expected a file"},
      {"/dev/zero", "not a regular file: got a device"},
      {temp.path(), "not a regular file: got a directory"},
      {temp.file("loop"), "symbolic links"},
      {temp.file(std::string(4096, 'x')), "use a shorter path"},
      {temp.file("plain/below"), "not a directory"},
      {temp.file(std::string("nul\0byte", 8)), "NUL byte"},
  };
  for (const auto& row : rows) {
    expect_in(row.text, error_of(ErrorKind::file, [&] { fs.read_file(row.path, 100); }));
  }
  expect_in("the file is too long: got 5 bytes, expected at most 4",
            error_of(ErrorKind::file, [&] { fs.read_file(temp.file("plain"), 4); }));
  if (::geteuid() != 0) {
    ASSERT_EQ(::chmod(temp.file("plain").c_str(), 0), 0);
    expect_in("Permission denied",
              error_of(ErrorKind::file, [&] { fs.read_file(temp.file("plain"), 10); }));
  }
  expect_in("bad\\x0aname\\xff: cannot open",
            error_of(ErrorKind::file, [&] { fs.open(temp.file("bad\nname\xff")); }));
}

TEST(FileSystem, ReadsStayInsideTheFile) {
  const TempDirectory temp;
  write_bytes(temp.file("a"), "12345678");
  const FileReader file = file_system().open(temp.file("a"));
  char buffer[16];
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  for (const auto& [offset, bytes] : {std::pair<std::int64_t, std::int64_t>{0, 9},
                                      {8, 1},
                                      {-1, 1},
                                      {kHuge, 2},
                                      {1, kHuge},
                                      {0, -1}}) {
    expect_in("too short: got 8 bytes",
              error_of(ErrorKind::file, [&, o = offset, n = bytes] { file.read(o, buffer, n); }));
  }
  ASSERT_EQ(::truncate(temp.file("a").c_str(), 4), 0);
  expect_in("the file shrank while it was read: got no bytes at byte 4, expected 4",
            error_of(ErrorKind::file, [&] { file.read(0, buffer, 8); }));
}

TEST(FileSystem, LockNamesItsHolder) {
  const TempDirectory temp;
  const FileSystem& fs = file_system();
  {
    LockAttempt first = fs.try_lock(temp.file("run.lock"), "pid 1 on a\n");
    ASSERT_TRUE(first.lock.has_value());
    const LockAttempt second = fs.try_lock(temp.file("run.lock"), "pid 2 on b\n");
    EXPECT_FALSE(second.lock.has_value());
    EXPECT_EQ(second.holder, "pid 1 on a\n");
  }
  const LockAttempt third = fs.try_lock(temp.file("run.lock"), "3\n");
  EXPECT_TRUE(third.lock.has_value());
  EXPECT_EQ(read_bytes(temp.file("run.lock")), "3\n");
}

// Writes one byte at a time, with interruptions; or fails its n-th mutating call with `error`.
class FaultyCalls final : public SystemCalls {
 public:
  ssize_t write(int fd, const void* data, std::size_t bytes) override {
    if (short_writes) {
      if (++calls % 3 == 0) return fail(calls % 2 == 0 ? EINTR : EAGAIN);
      return SystemCalls::write(fd, data, std::min<std::size_t>(bytes, 1));
    }
    return due() ? fail(error) : static_cast<int>(SystemCalls::write(fd, data, bytes));
  }
  ssize_t pread(int fd, void* data, std::size_t bytes, off_t offset) override {
    if (short_writes && ++calls % 3 == 0) return fail(EINTR);
    return SystemCalls::pread(fd, data, short_writes ? std::min<std::size_t>(bytes, 1) : bytes,
                              offset);
  }
  int fsync(int fd) override { return due() ? fail(error) : SystemCalls::fsync(fd); }
  int close(int fd) override {
    const int result = SystemCalls::close(fd);
    return due() ? fail(error) : result;
  }
  int rename(int directory, const char* from, const char* to) override {
    return due() ? fail(error) : SystemCalls::rename(directory, from, to);
  }

  bool short_writes = false;
  int calls = 0;
  int fail_at = 0;
  int error = 0;

 private:
  bool due() { return ++calls == fail_at; }
  static int fail(int e) {
    errno = e;
    return -1;
  }
};

TEST(FileSystem, ShortWritesAndSignalsLoseNothing) {
  const TempDirectory temp;
  FaultyCalls calls;
  calls.short_writes = true;
  FileSystem fs(calls);
  const FileSystemOverride guard(fs);
  const std::string text = "the quick brown fox jumps over the lazy dog";
  write_file(file_system(), temp.file("a"), text);
  EXPECT_EQ(read_bytes(temp.file("a")), text);
  EXPECT_EQ(file_system().read_file(temp.file("a"), 100), text);
}

// replace_file makes five calls that can lose data: whichever fails, the old text stands.
TEST(FileSystem, ReplaceFileSurvivesEveryFault) {
  const TempDirectory temp;
  for (const int error : {ENOSPC, EIO, EDQUOT}) {
    for (int n = 1; n <= 4; ++n) {
      write_bytes(temp.file("a"), "old");
      FaultyCalls calls;
      calls.fail_at = n;
      calls.error = error;
      FileSystem fs(calls);
      const std::string message =
          error_of(ErrorKind::io, [&] { fs.replace_file(temp.file("a"), "new"); });
      expect_in(concat("(errno ", error, ")"), message);
      EXPECT_EQ(read_bytes(temp.file("a")), "old");
      EXPECT_EQ(file_system().list_directory(temp.path()).size(), 1U);
    }
  }
}

// A file of ours is never reached through a link, and a pipe is never waited for.
TEST(FileSystem, OwnFilesAreNoLinksAndNoPipes) {
  const TempDirectory temp;
  const FileSystem& fs = file_system();
  write_bytes(temp.file("victim"), "precious");
  ASSERT_EQ(::symlink("victim", temp.file("link").c_str()), 0);
  ASSERT_EQ(::symlink("new", temp.file("dangling").c_str()), 0);
  ASSERT_EQ(::mkfifo(temp.file("fifo").c_str(), 0600), 0);
  for (const char* name : {"link", "dangling", "fifo"}) {
    SCOPED_TRACE(name);
    const std::string path = temp.file(name);
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { fs.create(path, WriteMode::append).write("x"); },
             [&] { fs.truncate_file(path, 0); },
             [&] { fs.try_lock(path, "pid 1\n"); },
             [&] { fs.directory(temp.path()).create(name, WriteMode::append); },
             [&] { fs.directory(temp.path()).read_file(name, 100); },
         }) {
      expect_in("not a regular file: got a ", error_of(ErrorKind::file, call));
    }
    EXPECT_THROW(fs.create(path), Error);
    EXPECT_THROW(fs.overwrite(path, {{"pre"}}, Links::refuse), Error);
    EXPECT_EQ(read_bytes(temp.file("victim")), "precious");
    EXPECT_FALSE(fs.exists(temp.file("new")));
  }
}

// Somebody else's links at the names that an older version wrote to on the way.
TEST(FileSystem, ReplaceFileIsNotLedAway) {
  const TempDirectory temp;
  write_bytes(temp.file("victim"), "precious");
  ASSERT_EQ(::symlink("victim", temp.file("a.tmp").c_str()), 0);
  ASSERT_EQ(::symlink("victim", temp.file("a").c_str()), 0);
  file_system().replace_file(temp.file("a"), "new");
  EXPECT_EQ(read_bytes(temp.file("victim")), "precious");
  EXPECT_EQ(file_system().type(temp.file("a")), FileType::regular);
  EXPECT_EQ(read_bytes(temp.file("a")), "new");
  EXPECT_NE(random_digits(), random_digits());
}

TEST(FileSystem, ADirectoryOfOursHoldsNamesOnly) {
  const TempDirectory temp;
  file_system().make_directories(temp.file("run/inner"));
  write_bytes(temp.file("victim"), "precious");
  ASSERT_EQ(::symlink("..", temp.file("run/up").c_str()), 0);
  const FileSystem run = file_system().directory(temp.file("run"));
  for (const char* name : {"../victim", "up/victim", "/victim", "inner/x", ".."}) {
    SCOPED_TRACE(name);
    expect_in("not a name in this directory",
              error_of(ErrorKind::file, [&] { run.create(name, WriteMode::append); }));
    error_of(ErrorKind::file, [&] { run.open(name); });
    error_of(ErrorKind::file, [&] { run.remove_tree(name); });
  }
  expect_in("got a symbolic link", error_of(ErrorKind::io, [&] { run.directory("up"); }));
  expect_in("got a symbolic link",
            error_of(ErrorKind::io, [&] { file_system().directory(temp.file("run/up")); }));
  EXPECT_EQ(read_bytes(temp.file("victim")), "precious");

  // It stays the same one when its name leads elsewhere.
  write_file(run, "a", "1");
  file_system().rename(temp.file("run"), temp.file("moved"));
  run.rename("a", "b");
  run.replace_file("b", "2");
  run.sync_directory(".");
  EXPECT_EQ(read_bytes(temp.file("moved/b")), "2");
  EXPECT_EQ(run.list_directory("."), (std::vector<std::string>{"b", "inner", "up"}));
}

TEST(FileSystem, OverwriteKeepsWhatIsNotOurs) {
  const TempDirectory temp;
  const FileSystem& fs = file_system();
  write_bytes(temp.file("notes"), "my notes");
  ASSERT_EQ(::symlink("notes", temp.file("link").c_str()), 0);
  for (const char* name : {"notes", "link"}) {
    expect_in("the file holds something else: got \"my notes\"", error_of(ErrorKind::usage, [&] {
                fs.overwrite(temp.file(name), {{"{\"ours\":", "ours too"}}, Links::follow);
              }));
  }
  expect_in("the file holds something else",
            error_of(ErrorKind::usage, [&] { fs.try_lock(temp.file("notes"), "pid 2\n"); }));
  EXPECT_EQ(read_bytes(temp.file("notes")), "my notes");
  for (const char* old : {"", "ours", "ours too, and long"}) {  // torn ones too
    write_bytes(temp.file("old"), old);
    FileWriter out = fs.overwrite(temp.file("old"), {{"ours too"}}, Links::follow);
    out.write("new");
    out.close();
    EXPECT_EQ(read_bytes(temp.file("old")), "new");
  }
}

TEST(FileSystem, TheKindOfAnErrorFollowsErrno) {
  class Refusing final : public SystemCalls {
   public:
    int openat(int, const char*, int, mode_t) override {
      errno = error;
      return -1;
    }
    int error = 0;
  } calls;
  const FileSystem fs(calls);
  const TempDirectory temp;
  write_bytes(temp.file("a"), "1");
  const struct {
    int error;
    ErrorKind reading, writing;
    bool unreadable;
  } rows[] = {{ENOENT, ErrorKind::file, ErrorKind::io, false},
              {EACCES, ErrorKind::file, ErrorKind::io, true},
              {EIO, ErrorKind::io, ErrorKind::io, true},
              {EMFILE, ErrorKind::io, ErrorKind::io, true},
              {ENOMEM, ErrorKind::memory, ErrorKind::memory, true}};
  for (const auto& row : rows) {
    calls.error = row.error;
    SCOPED_TRACE(row.error);
    error_of(row.writing, [&] { fs.create(temp.file("b")); });
    try {
      fs.open(temp.file("a"));
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(row.reading));
      EXPECT_EQ(is_unreadable(e), row.unreadable);
    }
  }
}

// Where each directory was synced, and one sync that fails.
TEST(FileSystem, AMadeDirectoryIsOnTheDisk) {
  class Syncs final : public SystemCalls {
   public:
    int fsync(int fd) override {
      char path[4096];
      const ssize_t n = ::readlink(concat("/proc/self/fd/", fd).c_str(), path, sizeof path);
      synced.emplace_back(path, static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
      errno = EIO;
      return static_cast<int>(synced.size()) == fail_at ? -1 : 0;
    }
    std::vector<std::string> synced;
    int fail_at = 0;
  };
  const TempDirectory temp;
  Syncs sound;
  FileSystem(sound).make_directories(temp.file("a/b"));
  EXPECT_EQ(sound.synced, (std::vector<std::string>{temp.path(), temp.file("a")}));
  Syncs failing;
  failing.fail_at = 2;
  error_of(ErrorKind::io, [&] { FileSystem(failing).make_directories(temp.file("c/d")); });
  EXPECT_EQ(file_system().list_directory(temp.path()), std::vector<std::string>{"a"});
}

TEST(Magic, NamesForeignFormats) {
  using std::string_view_literals::operator""sv;
  EXPECT_EQ(describe_magic("\x1f\x8b\x08")->what, "a gzip file");
  EXPECT_EQ(describe_magic("version https://git-lfs.github.com/spec/v1\noid")->what,
            "a Git LFS pointer, not the data itself");
  EXPECT_EQ(describe_magic(" \n<!DocType HTML><html>")->what, "an HTML page");
  EXPECT_EQ(describe_magic("\xff\xfe"
                           "a\0"sv)
                ->what,
            "UTF-16 text");
  EXPECT_EQ(describe_magic("\x80\x04\x95")->what, "a Python pickle");
  EXPECT_FALSE(describe_magic("once upon a time").has_value());
  EXPECT_FALSE(describe_magic("").has_value());
}

TEST(Printable, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(printable("a\x1b[31m\n\x7f"), "a\\x1b[31m\\x0a\\x7f");
  EXPECT_EQ(printable("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(printable("\xc0\x80\xed\xa0\x80\xf5"), "\\xc0\\x80\\xed\\xa0\\x80\\xf5");
  EXPECT_EQ(printable("\xe2\x80\xae"), "\\xe2\\x80\\xae");  // right-to-left override
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("abc", 3), "abc");
}

TEST(Hash, KnownAnswersAndPieces) {
  EXPECT_EQ(hash_bytes(""), "99aa06d3014798d86001c324468d497f");
  std::string data(3'000'000, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * i >> 7);
  Hasher pieces;
  for (std::size_t i = 0; i < data.size(); i += 777) {
    pieces.update(data.data() + i, std::min<std::size_t>(777, data.size() - i));
  }
  EXPECT_EQ(pieces.hex(), hash_bytes(data));
  const TempDirectory temp;
  write_bytes(temp.file("a"), data);
  EXPECT_EQ(hash_file(temp.file("a")), hash_bytes(data));
  data[1'234'567] = static_cast<char>(data[1'234'567] ^ 1);
  EXPECT_NE(pieces.hex(), hash_bytes(data));
}

}  // namespace
}  // namespace duet::test
