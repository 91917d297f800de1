// duet doctor: where a run would happen, and why.
#include <fmt/format.h>

#include "runtime/cpu/cpu_info.h"
#include "runtime/cpu/memory_limits.h"
#include "runtime/cuda_status.h"
#include "runtime/printable.h"
#include "tools/commands.h"
#include "tools/flags.h"
#include "tools/output.h"
#include "train/device_choice.h"
#include "train/environment.h"
#include "train/text.h"

namespace duet {

namespace {

// "13.0"
std::string version_words(int version) {
  return version == 0 ? std::string("none")
                      : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// The device that auto would choose, and all that was found of CUDA.
std::string device_lines() {
  const DeviceChoice choice = choose_device("auto");
  std::string text =
      fmt::format("device     {} ({})\n", device_words(choice.device), choice.reason);
  if (!kCudaBuild) return text;
  const CudaStatus& cuda = cuda_status();
  std::string architectures;
  for (const std::string& a : cuda.architectures) {
    architectures += fmt::format("{}{}", architectures.empty() ? "" : ", ", a);
  }
  std::string gpu = "none";
  if (!cuda.device_name.empty()) {
    gpu = fmt::format("{}, sm_{}, {} multiprocessors, {}, {} of it free; {} in all",
                      cuda.device_name, cuda.compute_capability, cuda.multiprocessors,
                      format_bytes(cuda.total_bytes), format_bytes(cuda.free_bytes), cuda.devices);
  }
  return text + fmt::format(
                    "CUDA       in this build: runtime {}, kernels for {}\n"
                    "driver     for CUDA {}\n"
                    "GPU        {}\n"
                    "cublasLt   {}\n",
                    version_words(cuda.runtime), architectures, version_words(cuda.driver), gpu,
                    cuda.cublaslt);
}

std::string isa_words(const CpuInfo& cpu) {
  if (cpu.isa_cap == "best") return "best (no cap)";
  return fmt::format("{} (the most that kernels and oneDNN may use)", cpu.isa_cap);
}

}  // namespace

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
                  "{}"
                  "cpu        {}\n"
                  "{}"
                  "threads    {}\n"
                  "kernels    {} (Highway, chosen at run time)\n"
                  "oneDNN     {}, {}\n"
                  "DUET_ISA   {}\n",
                  version(), compiler(), device_lines(), cpu.model, memory, threads_reason(),
                  cpu.vector_target, cpu.onednn_version, cpu.onednn_isa, isa_words(cpu)));
  return 0;
}

}  // namespace duet
