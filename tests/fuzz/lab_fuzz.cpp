// An experiment's file, and the configuration of each of its arms.
#include "tests/fuzz/fuzz_file.h"
#include "train/config.h"
#include "train/config_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace duet;
  fuzz::read([&] {
    const ExperimentFile file = parse_experiment(fuzz::text_of(data, size), "e.toml");
    for (std::size_t i = 0; i < std::min<std::size_t>(file.arms.size(), 8); ++i) {
      std::vector<Setting> settings = file.common;
      settings.insert(settings.end(), file.arms[i].settings.begin(), file.arms[i].settings.end());
      fuzz::read([&] { resolve_config({"", std::move(settings), /*resume=*/false}); });
    }
  });
  return 0;
}
