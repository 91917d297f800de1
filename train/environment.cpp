#include "train/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/cpu/cgroup.h"
#include "runtime/cpu/cpu_info.h"
#include "runtime/cpu/openmp.h"
#include "runtime/cpu/parallel.h"

namespace duet {

std::string_view version() { return DUET_VERSION; }

std::string compiler() {
#if defined(__clang__)
  return "Clang " __clang_version__;
#else
  return "GCC " __VERSION__;
#endif
}

std::string threads_reason() {
  const int quota = cgroup_quota(), used = num_threads();
  std::string why = fmt::format("CPU affinity {}", affinity_cpus());
  why += quota > 0 ? fmt::format(", cgroup quota {}", quota) : ", no cgroup quota";
  if (used < wanted_threads()) {
    why += fmt::format(", {} asked for, OMP_THREAD_LIMIT", wanted_threads());
  } else if (used != available_threads()) {
    why += std::getenv("OMP_NUM_THREADS") != nullptr ? ", OMP_NUM_THREADS" : ", chosen";
  }
  return fmt::format("{} ({})", used, why);
}

std::string planned_for_words(Device device) {
  if (device.kernels() != DeviceType::cpu) return std::string(name(device.kernels()));
  const CpuInfo cpu = cpu_info();
  return fmt::format("cpu (oneDNN {} on {}, {} {})", cpu.onednn_version, cpu.onednn_isa,
                     num_threads(), num_threads() == 1 ? "thread" : "threads");
}

std::string current_directory() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::current_path(error);
  return error ? "" : path.string();
}

std::string env_json(const std::vector<std::string>& command_line, const DeviceChoice& choice) {
  const CpuInfo cpu = cpu_info();
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  nlohmann::ordered_json out;
  out["version"] = version();
  out["compiler"] = compiler();
  out["command_line"] = command_line;
  out["directory"] = current_directory();  // where relative paths begin
  out["host"] = host;
  out["cpu"] = cpu.model;
  out["instruction_set_cap"] = cpu.isa_cap;
  out["vector_target"] = cpu.vector_target;
  out["device"] = device_words(choice.device);
  out["device_reason"] = choice.reason;
  out["threads"] = num_threads();
  out["affinity_cpus"] = affinity_cpus();
  out["cgroup_quota"] = cgroup_quota();
  out["memory_bytes"] = cpu.memory_bytes;
  out["onednn"] = {{"version", cpu.onednn_version}, {"isa", cpu.onednn_isa}};
  // Arguments may hold any bytes; JSON takes UTF-8 only.
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace duet
