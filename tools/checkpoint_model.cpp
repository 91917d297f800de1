#include "tools/checkpoint_model.h"

#include "runtime/cpu/openmp.h"
#include "runtime/cpu/parallel.h"
#include "runtime/error.h"
#include "runtime/memory_advice.h"
#include "runtime/printable.h"
#include "tools/output.h"
#include "train/device_choice.h"
#include "train/environment.h"
#include "train/run_checks.h"
#include "train/tensor_facts.h"

namespace duet {
namespace {

struct Notices final : Reporter {
  void on_notice(const std::string& text) override { note(text); }
};

}  // namespace

std::string elsewhere(Device device) {
  return device.type == DeviceType::cuda ? "run with --device cpu"
                                         : "end other programs, or raise the limit";
}

CheckpointModel open_model(const std::string& path, std::int64_t threads,
                           const std::string& device) {
  if (threads > 0) set_num_threads(static_cast<int>(threads));
  if (num_threads() < wanted_threads()) note("threads: " + threads_reason());
  const DeviceChoice choice = choose_device(device);
  note_fallback(device, choice);
  Notices notices;
  set_memory_advice("the checkpoint's weights do not fit here: " + elsewhere(choice.device));
  CheckpointReader checkpoint = CheckpointReader::open(path, notices);
  check_kernels(checkpoint.model_config(), choice.device);
  std::unique_ptr<Tokenizer> tokenizer = checkpoint.tokenizer();
  Transformer model(checkpoint.model_config(), DType::f32, choice.device);
  checkpoint.load_weights(named_tensors(model));
  const std::string bad = words_of_non_finite(named_tensors(model));
  if (!bad.empty()) {
    note(concat(printable(checkpoint.directory(), 4096),
                ": its weights are not finite, and what is "
                "computed with them will not be: ",
                bad));
  }
  return {std::move(checkpoint), std::move(tokenizer), std::move(model)};
}

}  // namespace duet
