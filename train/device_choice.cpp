#include "train/device_choice.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "runtime/cuda_status.h"
#include "runtime/error.h"
#include "runtime/printable.h"
#include "train/text.h"

namespace duet {
namespace {

std::string version_words(int version) { return concat(version / 1000, '.', version % 1000 / 10); }

// The key that the word most likely meant, or "".
std::string_view nearest_key(std::string_view word) {
  std::string lower;
  for (const char c : word) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  lower.resize(std::min(lower.find(':'), lower.size()));
  for (const char* gpu : {"gpu", "nvidia", "cuda"}) {
    if (lower == gpu) return "cuda";
  }
  return nearest_name(lower, {"auto", "cpu", "cuda"});
}

}  // namespace

std::string device_key(const std::string& word, const std::string& where) {
  if (word == "auto" || word == "cpu" || word == "cuda") return word;
  if (word.rfind("cuda:", 0) == 0) {
    const std::optional<std::int64_t> number = parse_integer(word.substr(5));
    if (number == 0) return "cuda";
    if (number && *number > 0) {
      throw Error(ErrorKind::usage,
                  concat(where, ": got ", in_quotes(word),
                         ", expected cuda or cuda:0: one GPU is supported, the first; "
                         "CUDA_VISIBLE_DEVICES=",
                         *number, " makes another one the first"));
    }
  }
  const std::string_view nearest = nearest_key(word);
  throw Error(ErrorKind::usage,
              concat(where, ": got ", in_quotes(word), ", expected one of auto, cpu, cuda",
                     nearest.empty() ? std::string() : concat("; did you mean ", nearest, "?")));
}

DeviceChoice choose_device(const std::string& word) {
  const std::string key = device_key(word, "device");
  if (key == "cpu") return {kCpu, "chosen"};
  if (!kCudaBuild) {
    check(key == "auto", ErrorKind::usage,
          "device: this build has no CUDA: got cuda, expected auto or cpu; run with "
          "--device cpu, or build with -DDUET_CUDA=ON for a GPU");
    return {kCpu, "auto: this build has no CUDA"};
  }
  const CudaStatus& cuda = cuda_status();
  if (key == "auto") {
    if (!cuda.usable) return {kCpu, concat("auto: no usable GPU: ", cuda.reason)};
    return {kCuda, "auto: it is usable"};
  }
  check(cuda.usable, ErrorKind::usage, "device: cuda is not usable: ", cuda.reason, " (",
        cuda_versions(), "); use --device cpu, or auto");
  return {kCuda, "chosen"};
}

std::string fallback_notice(const std::string& key, const DeviceChoice& choice) {
  const bool fell_back = kCudaBuild && key == "auto" && choice.device == kCpu;
  return fell_back ? "device: cpu: " + choice.reason : std::string();
}

Device planning_device(const std::string& word) {
  return device_key(word, "device") == "cuda" ? kMetaCuda : meta_for(training_device(word));
}

std::string device_words(Device device) {
  if (device.type != DeviceType::cuda) return concat(device);
  const CudaStatus& cuda = cuda_status();
  return concat(device, " (", cuda.device_name, ", ", format_bytes(cuda.total_bytes), ")");
}

std::string cuda_versions() {
  const CudaStatus& cuda = cuda_status();
  const std::string driver = cuda.driver == 0
                                 ? std::string("no driver")
                                 : concat("driver for CUDA ", version_words(cuda.driver));
  return concat(driver, ", this build for CUDA ", version_words(cuda.runtime));
}

}  // namespace duet
