// XXH3-128 content hashes (xxhash.com), as 32 hex digits like `xxhsum -H128` prints. They find
// damage, not forgery.
//
//   Hasher h;
//   h.update(data, bytes);
//   h.hex();                     // "99aa06d3014798d86001c324468d497f" for no bytes
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace duet {

class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void update(const void* data, std::size_t bytes);
  std::string hex() const;  // of all bytes so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hash_bytes(std::string_view bytes);
// Throws as FileSystem::open() and FileReader::read() do.
std::string hash_file(const std::string& path);

}  // namespace duet
