#include "runtime/cpu/cpu_info.h"

#include <unistd.h>

#include <fstream>
#include <oneapi/dnnl/dnnl.hpp>

#include "runtime/cpu/instruction_set.h"

namespace duet {
namespace {

std::string model_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, 10, "model name") == 0 && line.find(": ") != std::string::npos) {
      return line.substr(line.find(": ") + 2);
    }
  }
  return "unknown";
}

std::string isa_name(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41:
      return "SSE4.1";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
      return "AVX2";
    case dnnl::cpu_isa::avx512_core:
      return "AVX-512";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "AVX-512 VNNI";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX-512 BF16";
    default:
      return "isa " + std::to_string(static_cast<unsigned>(isa));
  }
}

}  // namespace

CpuInfo cpu_info() {
  CpuInfo info;
  info.isa_cap = cap_instruction_set();
  info.model = model_name();
  info.vector_target = vector_target();
  const dnnl_version_t* version = dnnl_version();
  info.onednn_version = std::to_string(version->major) + "." + std::to_string(version->minor) +
                        "." + std::to_string(version->patch);
  info.onednn_isa = isa_name(dnnl::get_effective_cpu_isa());
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  info.memory_bytes = pages > 0 && page > 0
                          ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page)
                          : 0;
  return info;
}

}  // namespace duet
