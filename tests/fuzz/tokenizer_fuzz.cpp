// tokenizer.json: what is read is written the same way again, and keeps bytes.
#include "tests/fuzz/fuzz_file.h"
#include "train/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace duet;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::read([&] {
    const auto tokenizer = parse_tokenizer(text, "tokenizer.json");
    const auto again = parse_tokenizer(tokenizer->json(), "tokenizer.json");
    fuzz::require(again->hash() == tokenizer->hash(), "written otherwise");
    if (tokenizer->mqar() != nullptr) return;
    fuzz::require(tokenizer->decode(tokenizer->encode(text)) == text, "bytes were lost");
  });
  return 0;
}
