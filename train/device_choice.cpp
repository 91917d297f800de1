#include "train/device_choice.h"

#include "runtime/cuda_status.h"
#include "runtime/error.h"
#include "runtime/printable.h"
#include "train/text.h"

namespace duet {
namespace {

std::string version_words(int version) { return concat(version / 1000, '.', version % 1000 / 10); }

}  // namespace

DeviceChoice choose_device(const std::string& key) {
  check(key == "auto" || key == "cpu" || key == "cuda", ErrorKind::usage, "device: got ",
        in_quotes(key), ", expected auto, cpu or cuda");
  if (key == "cpu") return {kCpu, "chosen"};
  if (!kCudaBuild) {
    check(key == "auto", ErrorKind::usage,
          "device: this build has no CUDA: got cuda, expected auto or cpu; build with "
          "-DDUET_CUDA=ON for a GPU");
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
