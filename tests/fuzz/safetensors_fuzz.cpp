// A .safetensors file: its header, and every small tensor of it.
#include "runtime/safetensors.h"
#include "tests/fuzz/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace duet;
  const std::string path = fuzz::write("model.safetensors", fuzz::text_of(data, size));
  fuzz::read([&] {
    const SafetensorsFile file = SafetensorsFile::open(path);
    for (const std::string& name : file.names()) {
      if (file.entry(name).end - file.entry(name).begin > (1 << 20)) continue;
      fuzz::read([&] { file.load(name); });
    }
  });
  return 0;
}
