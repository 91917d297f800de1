#include "train/run_directory.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <ctime>
#include <random>
#include <utility>

#include "runtime/hash.h"
#include "train/checkpoint.h"

namespace duet {
namespace {

constexpr std::int64_t kMaxRunFileBytes = 1 << 20;

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : "unknown";
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

}  // namespace

RunDirectory::RunDirectory(const std::string& out_dir) : out_dir_(out_dir) {
  FileSystem& files = file_system();
  files.make_directories(out_dir);
  LockAttempt attempt = files.try_lock(
      path("run.lock"), concat("pid ", getpid(), " on ", host_name(), " since ", utc_now(), "\n"));
  std::string holder = attempt.holder;
  while (!holder.empty() && holder.back() == '\n') holder.pop_back();
  check(attempt.lock.has_value(), ErrorKind::usage, out_dir, ": another run is using it (",
        printable(holder, 200), "); wait for it to end, or choose another out_dir");
  lock_ = std::move(*attempt.lock);
}

void RunDirectory::write(const std::string& name, const std::string& content) const {
  const std::string file = path(name);
  FileSystem& files = file_system();
  if (files.type(file) == FileType::regular &&
      files.file_size(file) == static_cast<std::int64_t>(content.size()) &&
      files.read_file(file, kMaxRunFileBytes) == content) {
    return;
  }
  files.replace_file(file, content);
}

bool has_run(const std::string& out_dir) {
  return has_checkpoints(out_dir) || file_system().exists(out_dir + "/metrics.jsonl");
}

std::string make_run_id() {
  std::random_device device;
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return hash_bytes(concat(host_name(), ' ', getpid(), ' ', now, ' ', device(), ' ', device()))
      .substr(0, 12);
}

}  // namespace duet
