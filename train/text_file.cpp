#include "train/text_file.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "runtime/error.h"
#include "runtime/hash.h"
#include "runtime/stop.h"

namespace duet {
namespace {

constexpr std::int64_t kPiece = 256 << 10;  // of a file that is read from end to end

// Binary formats and UTF-16 hold bytes that no UTF-8 text has. A text may well begin with "%PDF";
// a Git LFS pointer and an HTML page are texts, but not the ones that were meant.
std::optional<Magic> not_a_text(std::string_view head) {
  const std::optional<Magic> magic = describe_magic(head);
  if (magic && (head[0] == 'v' || magic->what.find("HTML") != std::string_view::npos)) {
    return magic;
  }
  // The head may end inside a character.
  const std::string_view whole =
      head.substr(0, head.size() - std::min<std::size_t>(head.size(), 3));
  const bool binary = whole.find('\0') != std::string_view::npos || first_invalid_utf8(whole) >= 0;
  if (magic && binary) return magic;
  // UTF-16 without its mark: Latin letters have a zero in every second byte.
  std::size_t zeros[2] = {0, 0};
  for (std::size_t i = 0; i < head.size(); ++i) zeros[i % 2] += head[i] == '\0' ? 1 : 0;
  const std::size_t half = head.size() / 2;
  if (half >= 8 &&
      ((zeros[0] > half * 3 / 4 && zeros[1] == 0) || (zeros[1] > half * 3 / 4 && zeros[0] == 0))) {
    return Magic{"UTF-16 text", "convert it to UTF-8 first (iconv -t UTF-8)"};
  }
  return std::nullopt;
}

// Calls f(piece) from the beginning to the end of a FileReader or a TextFile.
template <class File, class F>
void for_pieces(const File& file, F&& f) {
  std::vector<char> buffer(static_cast<std::size_t>(std::min(kPiece, file.size())));
  for (std::int64_t offset = 0; offset < file.size(); offset += kPiece) {
    check_stop();
    const std::int64_t bytes = std::min(kPiece, file.size() - offset);
    file.read(offset, buffer.data(), bytes);
    f(std::string_view(buffer.data(), static_cast<std::size_t>(bytes)));
  }
}

std::string hash_of(const FileReader& file) {
  Hasher hasher;
  for_pieces(file, [&](std::string_view piece) { hasher.update(piece.data(), piece.size()); });
  return hasher.hex();
}

// first_invalid_utf8() of a text that comes in pieces: what may be the beginning of a character
// waits for the next one.
class Utf8Check {
 public:
  void add(std::string_view piece) {
    if (bad_ >= 0) return;
    waiting_.append(piece);
    const std::int64_t at = first_invalid_utf8(waiting_);
    const std::size_t done = at < 0 ? waiting_.size() : static_cast<std::size_t>(at);
    if (at >= 0 && waiting_.size() - done > 3) {
      bad_ = before_ + at;
      return;
    }
    before_ += static_cast<std::int64_t>(done);
    waiting_.erase(0, done);
  }
  std::int64_t first_invalid() const { return bad_ >= 0 ? bad_ : waiting_.empty() ? -1 : before_; }

 private:
  std::string waiting_;
  std::int64_t before_ = 0;  // bytes before `waiting_`
  std::int64_t bad_ = -1;
};

}  // namespace

std::int64_t first_invalid_utf8(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::size_t length = utf8_length(bytes.substr(at, 4));
    if (length == 0) return static_cast<std::int64_t>(at);
    at += length;
  }
  return -1;
}

TextFile::TextFile(const std::string& path, bool strict_utf8)
    : reader_(file_system().open(path)), stamp_(reader_.stamp()) {
  check(size() > 0, ErrorKind::file, path, ": the file is empty; expected a text");
  if (const auto magic = not_a_text(reader_.head())) {
    throw Error(ErrorKind::file,
                concat(path, ": expected a text, found ", magic->what, "; ", magic->advice));
  }
  Hasher hasher;
  Utf8Check utf8;
  for_pieces(reader_, [&](std::string_view piece) {
    hasher.update(piece.data(), piece.size());
    if (strict_utf8) utf8.add(piece);
  });
  const std::int64_t bad = utf8.first_invalid();
  check(bad < 0, ErrorKind::file, path, ": not valid UTF-8 at byte ", bad,
        "; repair the text, or leave out --strict_utf8 to take bytes as they are");
  identity_ = {path, static_cast<std::uint64_t>(size()), hasher.hex()};
}

void TextFile::read(std::int64_t begin, char* data, std::int64_t bytes) const {
  reader_.read(begin, data, bytes);
  if (reader_.stamp() != stamp_) check_unchanged();
}

// Reading is what counts: bytes that came before the file changed are still those of the start.
void TextFile::check_unchanged() const {
  const FileReader::Stamp now = reader_.stamp();
  const std::string hash = now.size == size() ? hash_of(reader_) : "";
  check(hash == identity_.hash, ErrorKind::file, printable(identity_.path, 400),
        ": the text changed while it was in use: got ", now.size, " bytes",
        hash.empty() ? "" : ", hash " + hash, ", expected ", identity_.bytes, " bytes, hash ",
        identity_.hash, "; restore it, then go on from the last checkpoint");
  stamp_ = now;
}

void TextTokens::read(std::int64_t begin, std::span<std::int32_t> out) const {
  check(begin >= 0 && begin <= size() - std::ssize(out), ErrorKind::internal, "tokens: [", begin,
        ", ", begin + std::ssize(out), ") is outside the text's ", size());
  std::array<char, 4096> piece;
  while (!out.empty()) {
    const std::size_t count = std::min(piece.size(), out.size());
    file_->read(begin_ + begin, piece.data(), static_cast<std::int64_t>(count));
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<unsigned char>(piece[i]);
    out = out.subspan(count);
    begin += static_cast<std::int64_t>(count);
  }
}

std::int64_t count_words(const TextFile& text) {
  std::int64_t words = 0;
  bool inside = false;
  for_pieces(text, [&](std::string_view piece) {
    for (const char c : piece) {
      const bool space = c == ' ' || (c >= '\t' && c <= '\r');
      if (!space && !inside) ++words;
      inside = !space;
    }
  });
  return words;
}

}  // namespace duet
