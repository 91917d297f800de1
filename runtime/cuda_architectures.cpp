// Which GPUs a list of CMake's CUDA architectures covers, and which ones a toolkit compiles for.
#include <array>
#include <charconv>

#include "runtime/cuda_status.h"
#include "runtime/error.h"

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

// The toolkits that know C++20, newest first, and the oldest GPUs that each compiles for.
struct Toolkit {
  int major, lowest;
};
constexpr std::array<Toolkit, 2> kToolkits{{{13, 75}, {12, 50}}};

}  // namespace

bool has_code_for(const std::vector<std::string>& architectures, int compute_capability) {
  for (const std::string& a : architectures) {
    if (covers(a, compute_capability)) return true;
  }
  return false;
}

std::string build_advice(int compute_capability, int toolkit) {
  const int major = toolkit / 1000;
  int lowest = 0;
  for (const Toolkit& t : kToolkits) lowest = t.major >= major || lowest == 0 ? t.lowest : lowest;
  if (compute_capability >= lowest) {
    return concat("build with -DCMAKE_CUDA_ARCHITECTURES=", compute_capability);
  }
  std::string text = concat("the GPU is too old for the toolkit of this build: CUDA ", major,
                            " begins at sm_", lowest);
  for (const Toolkit& t : kToolkits) {
    if (t.major < major && compute_capability >= t.lowest) {
      return concat(text, "; build with the toolkit of CUDA ", t.major, ", which begins at sm_",
                    t.lowest);
    }
  }
  return text + ", and no toolkit that knows C++20 compiles for it";
}

}  // namespace duet
