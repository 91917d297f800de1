// KernelTrace: which libraries' kernels ran during its life, for `duet op list`. It observes; what
// runs does not change.
//
//   KernelTrace trace;
//   silu(x);
//   trace.highway();                               // "AVX2"; "" if only plain loops ran
#pragma once

#include <set>
#include <string>

namespace duet {

class KernelTrace {
 public:
  KernelTrace();  // Requires: no other trace is alive and no kernel runs.
  ~KernelTrace();
  KernelTrace(const KernelTrace&) = delete;
  KernelTrace& operator=(const KernelTrace&) = delete;

  // Implementations of oneDNN, as it names them: "gemm:jit", "brg:avx2".
  std::set<std::string> onednn() const;
  // The instruction set that Highway chose, or "" if none of its kernels ran.
  std::string highway() const;
};

// For the one place that runs oneDNN's primitives.
void trace_onednn(const std::string& implementation);

}  // namespace duet
