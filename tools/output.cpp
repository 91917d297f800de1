#include "tools/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "runtime/error.h"
#include "runtime/file_system.h"
#include "runtime/system_calls.h"
#include "train/config.h"

namespace duet {
void reserve_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free descriptor is fd itself.
    static_cast<void>(::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

namespace {

void write_standard(std::string_view bytes) {
  const int error = write_stream(STDOUT_FILENO, bytes);
  if (error == EPIPE) throw ReaderGone{};
  check(error == 0, ErrorKind::io, "standard output: cannot write: ", std::strerror(error));
}

}  // namespace

void write_out(std::string_view text) {
  static const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  static TerminalStream stream;
  if (terminal) {
    write_standard(stream.add(text));
  } else {
    write_standard(text);
  }
}

void write_progress(const Screen& text) {
  static bool lost = false;
  const int error = write_stream(STDOUT_FILENO, text.bytes());
  if (error == 0 || lost) return;
  lost = true;
  note(concat("standard output: cannot write: ", std::strerror(error), "; the work goes on"));
}

void write_error(std::string_view text) {
  static_cast<void>(write_stream(STDERR_FILENO, terminal_text(text)));
}

void note(const std::string& text) {
  if (!text.empty()) write_error("note: " + text + "\n");
}

void note_fallback(const std::string& key, const DeviceChoice& choice) {
  note(fallback_notice(key, choice));
}

namespace {

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

bool same_file(const std::string& a, const std::string& b) {
  const FileSystem& files = file_system();
  const std::optional<FileId> id = files.id(a);
  if (id || files.id(b)) return id == files.id(b);
  // Neither is there yet: the same name in the same directory.
  return files.id(parent_of(a)) == files.id(parent_of(b)) &&
         a.substr(a.rfind('/') + 1) == b.substr(b.rfind('/') + 1);
}

void check_writable(const std::string& path) {
  const FileSystem& files = file_system();
  if (files.exists(path)) {
    check(!files.is_directory(path), ErrorKind::io, printable(path),
          ": cannot write: got a directory, expected a file; name a file in it");
    check(::access(path.c_str(), W_OK) == 0, ErrorKind::io, printable(path),
          ": cannot write: ", std::strerror(errno), "; choose another path");
    return;
  }
  const std::string parent = parent_of(path);
  check(files.is_directory(parent), ErrorKind::io, printable(path),
        ": cannot write: ", printable(parent),
        " is no directory; make it first, or choose another path");
  check(path.back() != '/' && ::access(parent.c_str(), W_OK | X_OK) == 0, ErrorKind::io,
        printable(path), ": cannot write there; choose another path");
}

}  // namespace

void check_answers(const std::vector<AnswerFile>& answers, const std::vector<std::string>& inputs) {
  for (const AnswerFile& answer : answers) {
    if (answer.path.empty()) continue;
    check_writable(answer.path);
    refuse_input(answer.flag, answer.path, inputs);
    for (const AnswerFile* other = answers.data(); other != &answer; ++other) {
      check(other->path.empty() || !same_file(answer.path, other->path), ErrorKind::usage,
            answer.flag, ": got ", in_quotes(answer.path), ", the file of ", other->flag,
            " too, expected a file of its own for each; one would overwrite the other");
    }
    file_system().check_begins(answer.path, answer.begins);
  }
}

void write_answer(const AnswerFile& answer, std::string_view content) {
  if (answer.path.empty()) return;
  FileWriter file = file_system().overwrite(answer.path, answer.begins, Links::follow);
  file.write(content);
  file.close();
}

std::string read_input() {
  std::string out;
  std::vector<char> buffer(std::size_t{1} << 16);
  while (true) {
    const ssize_t n = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    check(n >= 0, ErrorKind::io, "standard input: cannot read: got ", std::strerror(errno),
          ", expected text; pipe or redirect a file into the command");
    if (n == 0) return out;
    out.append(buffer.data(), static_cast<std::size_t>(n));
  }
}

}  // namespace duet
