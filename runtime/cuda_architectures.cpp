// Which GPUs a list of CMake's CUDA architectures covers.
#include <charconv>

#include "runtime/cuda_status.h"

namespace duet {
namespace {

bool covers(const std::string& architecture, int capability) {
  int number = 0;
  const char* const end = architecture.data() + architecture.size();
  const auto [rest, error] = std::from_chars(architecture.data(), end, number);
  if (error != std::errc{}) return true;  // "native", "all": no number to compare with
  const std::string suffix(rest, end);
  if (!suffix.empty() && suffix[0] == 'a') return capability == number;
  const bool same_major = capability / 10 == number / 10 && capability >= number;
  if (!suffix.empty() && suffix[0] == 'f') return same_major;
  const bool has_ptx = suffix.empty() || suffix == "-virtual";
  return has_ptx ? capability >= number : same_major;
}

}  // namespace

bool has_code_for(const std::vector<std::string>& architectures, int compute_capability) {
  for (const std::string& a : architectures) {
    if (covers(a, compute_capability)) return true;
  }
  return false;
}

}  // namespace duet
