#include "runtime/hash.h"

#include <algorithm>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/file_system.h"
#include "runtime/stop.h"

namespace duet {

struct Hasher::State {
  XXH3_state_t state;
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->state); }
Hasher::~Hasher() = default;

void Hasher::update(const void* data, std::size_t bytes) {
  if (bytes > 0) XXH3_128bits_update(&state_->state, data, bytes);
}

std::string Hasher::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->state));
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += kHex[byte >> 4];
    text += kHex[byte & 0xfU];
  }
  return text;
}

std::string hash_bytes(std::string_view bytes) {
  Hasher hasher;
  hasher.update(bytes.data(), bytes.size());
  return hasher.hex();
}

std::string hash_file(const std::string& path) {
  constexpr std::int64_t kPiece = 1 << 20;
  const FileReader file = file_system().open(path);
  std::vector<char> buffer(static_cast<std::size_t>(std::min(kPiece, file.size())));
  Hasher hasher;
  for (std::int64_t offset = 0; offset < file.size(); offset += kPiece) {
    check_stop();
    const std::int64_t bytes = std::min(kPiece, file.size() - offset);
    file.read(offset, buffer.data(), bytes);
    hasher.update(buffer.data(), static_cast<std::size_t>(bytes));
  }
  return hasher.hex();
}

}  // namespace duet
