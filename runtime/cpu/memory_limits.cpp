#include "runtime/cpu/memory_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace duet {
namespace {

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

std::size_t read_number(const std::string& path) {
  std::size_t value = kUnlimited;
  std::ifstream in(path);
  if (!(in >> value)) return kUnlimited;  // missing, or the word "max"
  return value;
}

// The bytes behind `key` in a file of "key value [kB]" lines.
std::size_t read_field(const std::string& path, const std::string& key, std::size_t otherwise) {
  std::ifstream in(path);
  std::string word;
  std::size_t value = 0;
  while (in >> word) {
    if (word == key && in >> value) return value;
  }
  return otherwise;
}

// One control group and its parents; a group that grants more than the machine has is no limit.
// File cache counts as free: the kernel drops it when memory gets short.
void add_groups(const std::string& root, std::string group, const std::string& limit_file,
                const std::string& usage_file, std::vector<MemoryLimit>& out) {
  while (true) {
    const std::string directory = root + (group == "/" ? "" : group) + "/";
    const std::size_t limit = read_number(directory + limit_file);
    const std::size_t usage = read_number(directory + usage_file);
    const bool bounds = out.empty() || limit < out.front().total;
    if (bounds && limit != kUnlimited && usage != kUnlimited) {
      const std::string stat = directory + "memory.stat";
      const std::size_t files =
          read_field(stat, "inactive_file", 0) + read_field(stat, "active_file", 0);
      // Version 1 and 2 name it differently; what a program runs from is needed.
      const std::size_t mapped =
          read_field(stat, "mapped_file", read_field(stat, "file_mapped", 0));
      const std::size_t cache = files - std::min(files, mapped);
      const std::size_t used = usage - std::min(usage, cache);
      out.push_back({"control-group limit (" + limit_file + ")", limit,
                     limit - std::min(limit, used), false});
    }
    const std::size_t slash = group.find_last_of('/');
    if (slash == std::string::npos || group == "/") return;
    group = slash == 0 ? "/" : group.substr(0, slash);
  }
}

// ulimit: `field` of /proc/self/statm is what the process has of it, in pages.
void add_ulimit(decltype(RLIMIT_AS) resource, std::size_t field, const char* name,
                std::vector<MemoryLimit>& out) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  std::ifstream in("/proc/self/statm");
  std::size_t pages = 0;
  for (std::size_t i = 0; i <= field; ++i) in >> pages;
  const std::size_t total = limit.rlim_cur;
  const std::size_t used = in ? pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) : 0;
  out.push_back({name, total, total - std::min(total, used), true});
}

}  // namespace

std::vector<MemoryLimit> memory_limits() {
  std::vector<MemoryLimit> out;
  constexpr std::size_t kKilo = 1024;
  const std::size_t total = read_field("/proc/meminfo", "MemTotal:", 0);
  const std::size_t free = read_field("/proc/meminfo", "MemAvailable:", 0);
  if (total != 0) out.push_back({"machine memory", total * kKilo, free * kKilo, false});
  // Lines "hierarchy:controllers:path": version 2 has no controllers, version 1 names "memory".
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      add_groups("/sys/fs/cgroup", path, "memory.max", "memory.current", out);
    } else if (controllers == "memory") {
      add_groups("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes",
                 out);
    }
  }
  add_ulimit(RLIMIT_AS, 0, "address-space limit (ulimit -v)", out);
  add_ulimit(RLIMIT_DATA, 5, "data-segment limit (ulimit -d)", out);
  return out;
}

MemoryLimit tightest_memory_limit() {
  const std::vector<MemoryLimit> all = memory_limits();
  const auto least = std::min_element(all.begin(), all.end(),
                                      [](const auto& a, const auto& b) { return a.free < b.free; });
  return least == all.end() ? MemoryLimit{} : *least;
}

}  // namespace duet
