#include "runtime/cpu/cgroup.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <vector>

namespace duet {
namespace {

// quota / period in microseconds, or 0 ("max", -1, or no such file).
double cpus_v2(const std::string& directory) {
  std::string quota;
  double period = 0;
  std::ifstream in(directory + "/cpu.max");
  in.imbue(std::locale::classic());
  if (!(in >> quota >> period) || quota == "max" || period <= 0) return 0;
  return static_cast<double>(std::strtoll(quota.c_str(), nullptr, 10)) / period;
}

double cpus_v1(const std::string& directory) {
  double quota = 0, period = 0;
  std::ifstream(directory + "/cpu.cfs_quota_us") >> quota;
  std::ifstream(directory + "/cpu.cfs_period_us") >> period;
  return quota > 0 && period > 0 ? quota / period : 0;
}

// Looks at root/path, its parents, and root itself. Inside a container the path may be one of the
// host that does not exist here: then only the root counts.
double smallest(const std::string& root, std::string path, double (*cpus)(const std::string&)) {
  double least = 0;
  while (true) {
    if (const double n = cpus(root + path); n > 0 && (least == 0 || n < least)) least = n;
    if (path.empty() || path == "/") return least;
    path.resize(path.rfind('/'));
  }
}

bool has_controller(const std::string& list, const std::string& name) {
  return ("," + list + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace

int cgroup_quota(const std::string& root, const std::string& membership) {
  std::vector<double> found = {cpus_v2(root), cpus_v1(root + "/cpu")};
  std::ifstream in(membership);
  for (std::string line; std::getline(in, line);) {  // "0::/path" or "4:cpu,cpuacct:/path"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || line.substr(second + 1, 1) != "/") continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      found.push_back(smallest(root, path, cpus_v2));
      found.push_back(smallest(root + "/unified", path, cpus_v2));
    } else if (has_controller(controllers, "cpu")) {
      found.push_back(smallest(root + "/cpu", path, cpus_v1));
    }
  }
  double least = 0;
  for (const double n : found) {
    if (n > 0 && (least == 0 || n < least)) least = n;
  }
  return least > 0 ? std::max(1, static_cast<int>(std::ceil(least - 1e-9))) : 0;
}

}  // namespace duet
