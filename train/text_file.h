// A text that is read by position, so that no memory grows with it; what the file was at the start
// is checked, and stays true for as long as it is read.
//
//   const auto file = std::make_shared<const TextFile>("book.txt", /*strict_utf8=*/false);
//   const TextTokens first_half(file, 0, file->size() / 2);
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/file_system.h"
#include "train/token_source.h"

namespace duet {

// Which file it was: recorded at the start, compared on resume.
struct FileIdentity {
  std::string path;
  std::uint64_t bytes = 0;
  std::string hash;  // XXH3-128 of the content, hexadecimal
};

class TextFile {
 public:
  // Reads the file once, piece by piece. Bytes stay bytes. Throws Error(file) naming what the file
  // is when it is no text (UTF-16, gzip, a Git LFS pointer, ...), and with `strict_utf8` the offset
  // of the first byte that is not UTF-8.
  TextFile(const std::string& path, bool strict_utf8);

  const FileIdentity& identity() const { return identity_; }
  std::int64_t size() const { return reader_.size(); }
  // Requires that the bytes are inside. Throws Error(file) when the file shrank, or holds other
  // bytes than at the start; a file that was only touched is read once more and goes on.
  void read(std::int64_t begin, char* data, std::int64_t bytes) const;

 private:
  void check_unchanged() const;

  FileReader reader_;
  FileIdentity identity_;
  mutable FileReader::Stamp stamp_;
};

// The bytes [begin, end) of a text as the byte tokenizer's ids.
class TextTokens final : public TokenSource {
 public:
  TextTokens(std::shared_ptr<const TextFile> file, std::int64_t begin, std::int64_t end)
      : file_(std::move(file)), begin_(begin), end_(end) {}
  std::int64_t size() const override { return end_ - begin_; }
  std::int64_t bytes() const override { return size(); }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override;

 private:
  std::shared_ptr<const TextFile> file_;
  std::int64_t begin_, end_;
};

// Offset of the first byte that is not well-formed UTF-8, or -1.
std::int64_t first_invalid_utf8(std::string_view bytes);
// Runs of bytes between white space.
std::int64_t count_words(const TextFile& text);

}  // namespace duet
