#include "runtime/cpu/instruction_set.h"

#include <hwy/highway.h>

#include <cstdint>
#include <cstdlib>
#include <oneapi/dnnl/dnnl.hpp>

#include "runtime/error.h"

namespace duet {
namespace {

struct Cap {
  const char* word;
  std::int64_t target;  // Highway's; a better target has a lower bit
  dnnl::cpu_isa onednn;
};

#if HWY_ARCH_X86
constexpr Cap kCaps[] = {{"baseline", HWY_STATIC_TARGET, dnnl::cpu_isa::sse41},
                         {"avx2", HWY_AVX2, dnnl::cpu_isa::avx2},
                         {"avx512", HWY_AVX3, dnnl::cpu_isa::avx512_core}};
#else
constexpr Cap kCaps[] = {{"baseline", HWY_STATIC_TARGET, dnnl::cpu_isa::all}};
#endif

bool is_offered(const Cap& cap) { return (hwy::SupportedTargets() & cap.target) != 0; }

// "baseline, avx2"
std::string offered() {
  std::string words;
  for (const Cap& cap : kCaps) {
    if (is_offered(cap)) words += concat(words.empty() ? "" : ", ", cap.word);
  }
  return words;
}

void apply(const Cap& cap) {
  check(is_offered(cap), ErrorKind::usage,
        "DUET_ISA: this processor does not have that instruction set: got ", cap.word,
        ", expected ", offered(), " or best");
  hwy::DisableTargets(cap.target - 1);
  check(dnnl::set_max_cpu_isa(cap.onednn) == dnnl::status::success, ErrorKind::internal,
        "DUET_ISA: oneDNN was in use before it could be capped at ", cap.word);
}

std::string apply_environment() {
  const char* const variable = std::getenv("DUET_ISA");
  std::string word = variable == nullptr || *variable == '\0' ? "best" : variable;
  if (word == "best") return word;
  for (const Cap& cap : kCaps) {
    if (word != cap.word) continue;
    apply(cap);
    return word;
  }
  throw Error(ErrorKind::usage, concat("DUET_ISA: not an instruction set: got ", word,
                                       ", expected baseline, avx2, avx512 or best"));
}

}  // namespace

const std::string& cap_instruction_set() {
  static const std::string word = apply_environment();
  return word;
}

std::string vector_target() {
  cap_instruction_set();
  // Asking Highway 1.0 also chooses, and forgets the cap: so what was chosen before is put back.
  const bool chosen = hwy::GetChosenTarget().IsInitialized();
  const std::int64_t targets = hwy::SupportedTargets();
  if (chosen) {
    hwy::GetChosenTarget().Update(targets);
  } else {
    hwy::GetChosenTarget().DeInit();
  }
  // The best target is the lowest bit of those that are both compiled and supported.
  const std::int64_t usable = targets & HWY_TARGETS;
  return usable == 0 ? "scalar" : hwy::TargetName(usable & -usable);
}

}  // namespace duet
