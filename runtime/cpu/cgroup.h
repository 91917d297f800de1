// CPUs that the control group of this process grants (containers, systemd scopes, batch systems).
#pragma once

#include <string>

namespace duet {

// The smallest quota on the way from the process's group to the root, rounded up to whole CPUs; 0
// when there is none. The paths are parameters for tests.
int cgroup_quota(const std::string& root = "/sys/fs/cgroup",
                 const std::string& membership = "/proc/self/cgroup");

}  // namespace duet
