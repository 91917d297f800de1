// A memory trace, replayed.
#include "runtime/memory_trace.h"
#include "tests/fuzz/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace duet;
  const std::string path = fuzz::write("alloc.trace", fuzz::text_of(data, size));
  fuzz::read([&] { replay_trace(path); });
  return 0;
}
