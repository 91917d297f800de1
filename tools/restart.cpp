#include "tools/restart.h"

#include <cstddef>
#include <fstream>

namespace duet {
namespace {

Restart& stored() {
  static Restart value;
  return value;
}

// The words that the kernel was given; empty without /proc.
std::vector<std::string> kernel_command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace

void set_restart(int argc, char* const* argv) {
  const auto own = static_cast<std::size_t>(argc);
  std::vector<std::string> words = kernel_command_line();
  // A loader hands on the end of its command line only: the words before it are the loader's.
  if (own > 0 && words.size() > own) {
    words.resize(words.size() - (own - 1));
  } else {
    words.assign(argv, argv + (own > 0 ? 1 : 0));
  }
  stored().words = words;
}

const Restart& restart() { return stored(); }

}  // namespace duet
