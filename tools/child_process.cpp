#include "tools/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/cpu/openmp.h"
#include "runtime/error.h"
#include "runtime/file_system.h"
#include "runtime/printable.h"
#include "tools/restart.h"

namespace duet {
namespace {

int exit_code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// After fork(), in the child: only calls that are safe there.
[[noreturn]] void become(const char* file, char* const* argv, int out, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(128 + SIGTERM);  // it died before we asked
  const int in = open("/dev/null", O_RDONLY);
  if (in < 0) _exit(1);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  if (in > STDERR_FILENO) close(in);
  execv(file, argv);
  _exit(1);
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const std::string& log) {
  std::vector<std::string> words = restart().words;
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const FileWriter out = file_system().create(log, WriteMode::append);
  const pid_t parent = getpid();
  unbind_thread();  // the child inherits where this thread may run
  pid_ = fork();
  if (pid_ == 0) become(restart().file.c_str(), argv.data(), out.fd(), parent);
  check(pid_ > 0, ErrorKind::io, "a run cannot be started: got ", std::strerror(errno),
        ", expected a new process for ", printable(log, 4096), "; run the command again");
}

ChildProcess::~ChildProcess() {
  if (pid_ <= 0 || code_) return;
  kill(pid_, SIGTERM);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
}

std::optional<int> ChildProcess::poll() {
  int status = 0;
  if (!code_ && waitpid(pid_, &status, WNOHANG) == pid_) code_ = exit_code_of(status);
  return code_;
}

void ChildProcess::signal(int number) const {
  if (!code_) kill(pid_, number);
}

}  // namespace duet
