#include "tools/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "runtime/error.h"
#include "runtime/file_system.h"
#include "runtime/system_calls.h"

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

void write_file(const std::string& path, std::string_view content) {
  FileWriter file = file_system().create(path, WriteMode::overwrite);
  file.write(content);
  file.close();
}

void check_writable(const std::string& path) {
  if (path.empty()) return;
  const FileSystem& files = file_system();
  if (files.exists(path)) {
    check(!files.is_directory(path), ErrorKind::io, printable(path),
          ": cannot write: got a directory, expected a file; name a file in it");
    check(::access(path.c_str(), W_OK) == 0, ErrorKind::io, printable(path),
          ": cannot write: ", std::strerror(errno), "; choose another path");
    return;
  }
  const std::size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  check(files.is_directory(parent), ErrorKind::io, printable(path),
        ": cannot write: ", printable(parent),
        " is no directory; make it first, or choose another path");
  check(slash != path.size() - 1 && ::access(parent.c_str(), W_OK | X_OK) == 0, ErrorKind::io,
        printable(path), ": cannot write there; choose another path");
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
