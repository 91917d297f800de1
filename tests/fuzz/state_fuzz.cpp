// state.json: what is read is written the same way again.
#include "tests/fuzz/fuzz_file.h"
#include "train/train_state.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace duet;
  fuzz::read([&] {
    const TrainState state = parse_state(std::string(fuzz::text_of(data, size)), "state.json");
    const std::string text = to_json(state);
    fuzz::require(to_json(parse_state(text, "state.json")) == text, "written otherwise");
    differences(state.model, ModelConfig{});
  });
  return 0;
}
