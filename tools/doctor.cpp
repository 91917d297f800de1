// duet doctor: where a run would happen, and why.
#include <fmt/format.h>

#include "runtime/cpu/cpu_info.h"
#include "runtime/cpu/memory_limits.h"
#include "runtime/printable.h"
#include "tools/commands.h"
#include "tools/flags.h"
#include "tools/output.h"
#include "train/environment.h"
#include "train/text.h"

namespace duet {

int run_doctor(const Arguments& arguments) {
  Flags flags("duet doctor", "", "device, libraries, instruction set, threads, and why");
  if (!flags.parse(arguments)) return 0;
  const CpuInfo cpu = cpu_info();
  std::string memory;
  for (const MemoryLimit& limit : memory_limits()) {
    memory += fmt::format("{:<11}{}: {}, {} of it free\n", memory.empty() ? "memory" : "",
                          limit.name, format_bytes(limit.total), format_bytes(limit.free));
  }
  write_out(
      fmt::format("duet       {}, {}\n"
                  "device     cpu (this build has no CUDA)\n"
                  "cpu        {}\n"
                  "{}"
                  "threads    {}\n"
                  "kernels    {} (Highway, chosen at run time)\n"
                  "oneDNN     {}, {}\n",
                  version(), compiler(), cpu.model, memory, threads_reason(), cpu.vector_target,
                  cpu.onednn_version, cpu.onednn_isa));
  return 0;
}

}  // namespace duet
