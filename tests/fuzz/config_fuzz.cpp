// A configuration file, and the configuration that it gives.
#include "tests/fuzz/fuzz_file.h"
#include "train/config.h"
#include "train/config_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace duet;
  fuzz::read([&] {
    std::vector<Setting> settings = parse_config(fuzz::text_of(data, size), "config.toml");
    resolve_config({"", std::move(settings), /*resume=*/false});
  });
  return 0;
}
