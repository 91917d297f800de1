#include "train/run_directory.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <random>
#include <string_view>
#include <utility>

#include "runtime/hash.h"
#include "train/checkpoint.h"
#include "train/command_line.h"

namespace duet {
namespace {

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

constexpr const char* kLock = "run.lock";
constexpr std::string_view kLockBegins = "pid ";  // as FileSystem::try_lock() wants it
constexpr std::int64_t kLongestLock = 1 << 16;
constexpr std::array kReplaced{"config.toml", "env.json", "tokenizer.json"};

// "config.toml.tmp-0123456789abcdef", or "config.toml.tmp" of an older version.
bool is_leftover(std::string_view name) {
  constexpr std::string_view kOldMark = ".tmp";
  const std::size_t mark = name.rfind(kOldMark);
  if (mark == std::string_view::npos) return false;
  const std::string_view file = name.substr(0, mark), end = name.substr(mark);
  if (end == kOldMark) {
    return file == "metrics.jsonl" ||
           std::find(kReplaced.begin(), kReplaced.end(), file) != kReplaced.end();
  }
  const std::string_view digits = end.substr(std::min(kTemporaryMark.size(), end.size()));
  return !file.empty() && end.starts_with(kTemporaryMark) && digits.size() == 16 &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

RunDirectory::RunDirectory(const std::string& out_dir) : out_dir_(out_dir) {
  try {
    make(out_dir);
    const std::string file = path(kLock);
    std::optional<std::string> before;
    if (file_system().type(file) == FileType::regular) {
      before = file_system().read_file(file, kLongestLock);
    } else if (file_system().type(file) == FileType::missing) {
      before_.emplace_back(file, std::nullopt);
    }
    LockAttempt attempt = file_system().try_lock(
        file, concat(kLockBegins, getpid(), " on ", host_name(), " since ", utc_now(), "\n"));
    if (!attempt.lock) before_.clear();  // the file is another run's
    if (attempt.lock && before) before_.emplace_back(file, std::move(before));
    std::string holder = attempt.holder;
    while (!holder.empty() && holder.back() == '\n') holder.pop_back();
    check(attempt.lock.has_value(), ErrorKind::usage, out_dir, ": another run is using it (",
          printable(holder, 200), "); wait for it to end, or choose another out_dir");
    lock_ = std::move(*attempt.lock);
  } catch (...) {
    undo();
    throw;
  }
}

RunDirectory::~RunDirectory() {
  if (!kept_) undo();
}

void RunDirectory::make(const std::string& directory) {
  for (std::string& made : file_system().make_directories(directory)) {
    made_directories_.push_back(std::move(made));
  }
}

void RunDirectory::make_directory(const std::string& name) {
  make(path(name));
  check(file_system().type(path(name)) == FileType::directory, ErrorKind::io,
        printable(path(name), 400),
        ": not a directory of the run: got a symbolic link, expected a directory; move the link "
        "away");
}

void RunDirectory::sync() const {
  const std::string parent = out_dir_ + "/..";
  if (::access(parent.c_str(), R_OK) == 0) file_system().sync_directory(parent);
  file_system().sync_directory(out_dir_);
}

void RunDirectory::remove_leftovers() {
  const FileSystem files = file_system().directory(out_dir_, Links::follow);
  for (const std::string& name : files.list_directory(".")) {
    if (!is_leftover(name) || files.type(name) != FileType::regular) continue;
    try {
      files.remove_file(name);
    } catch (const Error&) {
      // It is in nobody's way; the next run tries again.
    }
  }
}

void RunDirectory::remember(const std::string& file) {
  std::optional<std::string> content;
  FileSystem& files = file_system();
  // Far above what a run writes here: a longer file is none of its own, and stays as it is.
  constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;
  if (files.exists(file)) content = files.read_file(file, kMostBytes);
  before_.emplace_back(file, std::move(content));
}

// Every entry by itself: one that cannot be undone does not keep the others.
void RunDirectory::undo() noexcept {
  const auto attempt = [](auto&& f) {
    try {
      f();
    } catch (const std::exception&) {
      // What made the run end is what the user must read.
    }
  };
  FileSystem& files = file_system();
  for (auto entry = before_.rbegin(); entry != before_.rend(); ++entry) {
    attempt([&] {
      const auto& [file, content] = *entry;
      if (content) {
        files.replace_file(file, *content);
      } else {
        files.remove_file(file);
      }
    });
  }
  for (auto made = made_directories_.rbegin(); made != made_directories_.rend(); ++made) {
    attempt([&] { files.remove_directory(*made); });
  }
}

void RunDirectory::write(const std::string& name, const std::string& content) {
  const std::string file = path(name);
  FileSystem& files = file_system();
  if (files.type(file) == FileType::regular &&
      files.file_size(file) == static_cast<std::int64_t>(content.size()) &&
      files.read_file(file, static_cast<std::int64_t>(content.size())) == content) {
    return;
  }
  if (!kept_) remember(file);
  files.replace_file(file, content);
}

void refuse_foreign_files(const std::string& out_dir) {
  // The lock is a run's first file, and taking it refuses one that is not.
  const bool was_run = file_system().type(concat(out_dir, "/", kLock)) == FileType::regular;
  if (was_run || has_run(out_dir)) return;
  for (const char* name : kReplaced) {
    const std::string path = concat(out_dir, "/", name);
    check(file_system().type(path) == FileType::missing, ErrorKind::usage, "out_dir: got ",
          in_quotes(out_dir), ", where ", printable(path, 400),
          " is a file that no run wrote: a run would replace it; choose another directory, such as "
          "--out_dir ",
          shell_word(out_dir + "/run"), ", or move the file away");
  }
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
