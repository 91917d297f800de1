// manifest.json as it is, and with its own hash made right: most changes end at that one.
#include "runtime/hash.h"
#include "tests/fuzz/fuzz_file.h"
#include "train/json_text.h"
#include "train/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace duet;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::write("manifest.json", text);
  fuzz::read([] { read_manifest(fuzz::directory()); });
  auto tree = try_json(text);
  if (!tree || !tree->is_object()) return 0;
  tree->erase("xxh3");
  (*tree)["xxh3"] =
      hash_bytes(tree->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  fuzz::write("manifest.json", tree->dump());
  fuzz::read([] {
    const Manifest manifest = read_manifest(fuzz::directory());
    to_json(manifest);
    for (const auto& file : manifest.files) {
      fuzz::read([&] { verify_file(manifest, fuzz::directory(), file.first); });
    }
  });
  return 0;
}
