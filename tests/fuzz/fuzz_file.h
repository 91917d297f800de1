// What the fuzz targets share. A target gives libFuzzer's bytes to one reader: an Error of a kind
// that a bad file may cause is the right answer, anything else (another exception, a signal, a
// sanitizer's report, seconds or gigabytes) is a fault.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "runtime/error.h"

namespace duet::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// A directory of this process, in memory where the system has /dev/shm; removed at its end.
inline const std::string& directory() {
  struct Scratch {
    std::string path = (std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp") +
                       std::string("/duet_fuzz_") + std::to_string(getpid());
    Scratch() { std::filesystem::create_directories(path); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() { std::filesystem::remove_all(path); }
  };
  static const Scratch scratch;
  return scratch.path;
}

// The path of a file with these bytes.
inline std::string write(const std::string& name, std::string_view bytes) {
  const std::string path = directory() + "/" + name;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  return path;
}

// For what must hold of a file that was read.
inline void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

// Calls f. An error of another kind than a bad input's is a fault, and so is one without a message.
template <class F>
void read(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    const bool input = e.kind() == ErrorKind::file || e.kind() == ErrorKind::usage;
    if (!input || std::string_view(e.what()).size() < 8) throw;
  }
}

}  // namespace duet::fuzz
