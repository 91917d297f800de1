// What this machine and the linked libraries are: for `duet doctor` and env.json.
#pragma once

#include <cstdint>
#include <string>

namespace duet {

struct CpuInfo {
  std::string model;           // "AMD EPYC 7543"
  std::string vector_target;   // what our own kernels will use: "AVX2"
  std::string onednn_version;  // "2.6.3"
  std::string onednn_isa;      // what oneDNN will use
  std::string isa_cap;         // DUET_ISA, "best" where it is unset
  std::uint64_t memory_bytes;  // of the machine
};

CpuInfo cpu_info();  // Throws Error(usage) for a DUET_ISA that cannot be had.

}  // namespace duet
