// Texts read by position: what is refused, that bytes stay bytes, and that a change is noticed.
#include "train/text_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "runtime/hash.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/same_text.h"
#include "tests/runtime/temp_directory.h"
#include "tests/train/vector_tokens.h"
#include "train/tokenizer.h"

namespace duet::test {
namespace {

std::string read_text(const std::string& path, bool strict_utf8) {
  const TextFile file(path, strict_utf8);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, text.data(), file.size());
  return text;
}

TEST(TextFile, NamesWhatIsNoText) {
  const TempDirectory temp;
  const auto refused = [&](const std::string& bytes) {
    write_bytes(temp.file("t"), bytes);
    return error_of(ErrorKind::file, [&] { read_text(temp.file("t"), false); });
  };
  using std::string_literals::operator""s;
  expect_in("a gzip file", refused("\x1f\x8b\x08\0\0\0\0\0"s + std::string(99, '\xf3')));
  expect_in("a Git LFS pointer", refused("version https://git-lfs.github.com/spec/v1\noid 1\n"));
  expect_in("an HTML page", refused("<!DOCTYPE html>\n<html><body>404</body></html>"));
  expect_in("UTF-16", refused("\xff\xfeh\0i\0"s));
  expect_in("UTF-16", refused("h\0e\0l\0l\0o\0 \0w\0o\0r\0l\0d\0"s));
  expect_in("UTF-16", refused("\0h\0e\0l\0l\0o\0 \0w\0o\0r\0l\0d"s));
  // A text may begin with the letters of a binary format.
  write_bytes(temp.file("t"), "%PDF is a format, PAR1 another, GGUF a third.");
  EXPECT_NO_THROW(read_text(temp.file("t"), true));
  // A directory or a device is no text either.
  error_of(ErrorKind::file, [&] { read_text(temp.path(), false); });
  error_of(ErrorKind::file, [&] { read_text("/dev/zero", false); });
}

TEST(TextFile, StrictUtf8NamesTheOffset) {
  const TempDirectory temp;
  const std::map<std::string, std::int64_t> cases = {
      {"ok\x80", 2},         // lone continuation
      {"\xc0\x80", 0},       // overlong
      {"a\xed\xa0\x80", 1},  // surrogate
      {"abc\xf5\x80\x80\x80", 3},
      {"abcd\xe2\x82", 4},  // cut at the end
      {"h\xc3\xa9, \xf0\x9f\x91\xa8, \xe2\x80\xa8 fine", -1},
  };
  for (const auto& [bytes, offset] : cases) {
    EXPECT_EQ(first_invalid_utf8(bytes), offset);
    write_bytes(temp.file("t"), bytes);
    EXPECT_EQ(read_text(temp.file("t"), false), bytes);
    if (offset < 0) {
      EXPECT_EQ(read_text(temp.file("t"), true), bytes);
    } else {
      expect_in(concat("not valid UTF-8 at byte ", offset),
                error_of(ErrorKind::file, [&] { read_text(temp.file("t"), true); }));
    }
  }
}

// Reads `path` as a text must be read: `refused` by this name, or byte for byte, and strictly only
// where it is UTF-8.
void read_nasty(const std::string& path, const std::string& refused, bool utf8) {
  SCOPED_TRACE(path);
  if (!refused.empty()) {
    expect_in(refused, error_of(ErrorKind::file, [&] { read_text(path, false); }));
    return;
  }
  const auto tokenizer = make_byte_tokenizer();
  const std::string text = read_text(path, false);
  EXPECT_TRUE(same_text(text, read_bytes(path)));
  EXPECT_TRUE(same_text(tokenizer->decode(tokenizer->encode(text)), text));
  if (utf8) {
    EXPECT_TRUE(same_text(read_text(path, true), text));
  } else {
    expect_in("not valid UTF-8", error_of(ErrorKind::file, [&] { read_text(path, true); }));
  }
}

// Byte-level horrors: bytes are taken as they are, or refused by name.
TEST(TextFile, NastyFiles) {
  using std::string_literals::operator""s;
  struct Nasty {
    std::string bytes;
    bool utf8 = true;
    std::string refused = {};
  };
  std::string all, utf16 = "\xff\xfe"s, lines;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  for (const char c : "text of two bytes a letter"s) utf16 += {c, '\0'};
  for (int i = 0; i < 5000; ++i) lines += "the same line\r\n";
  const std::vector<Nasty> files = {
      {all, false},
      {"caf\xe9, na\xefve, \xa3 5\n", false},              // Latin-1
      {"good \xe2\x82\xac, bad \xe2\x82, good\n", false},  // cut inside
      {"a\tb\t\"c\nd\"\t\xff\n", false},                   // a table
      {"\xef\xbb\xbfwith a mark\n"},                       // UTF-8's BOM
      {"\x01\x02\x1b[31mred\x1b[0m\x7f\n"},                // control characters
      {"one\rtwo\rthree"},                                 // CR ends lines
      {"unix\nwindows\r\nmac\rnone"},                      // mixed, no last one
      {"\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7"},  // joined
      {"\xef\xbf\xbe \xef\xbf\xbf \xf4\x8f\xbf\xbf"},       // noncharacters
      {"\xc2\xa0 \xe2\x80\x83 \xe3\x80\x80 \xe2\x80\xa8"},  // blanks of Unicode
      {"<|endoftext|> <s> </s> [PAD]"},                     // tokens elsewhere
      {std::string(1000, ' ')},
      {std::string(1 << 18, 'x')},
      {lines},
      {"x"},
      {"\x1f\x8b\x08\0\0\0\0\0\0\x03"s + std::string(99, '\xf3'), false, "a gzip file"},
      {utf16, false, "UTF-16 text"},
  };
  const TempDirectory temp;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string path = temp.file(concat("nasty", i));
    write_bytes(path, files[i].bytes);
    read_nasty(path, files[i].refused, files[i].utf8);
  }
  const char* root = std::getenv("DUET_TEST_DATA");  // has more, of other people's making
  if (root == nullptr) return;
  const std::map<std::string, std::string> refused = {{"gzip_named_txt.txt", "a gzip file"},
                                                      {"utf16le_bom.txt", "UTF-16 text"}};
  const std::set<std::string> not_utf8 = {"all_bytes_256.bin", "csv_messy.tsv",
                                          "invalid_utf8_mixed.txt", "latin1.txt"};
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(concat(root, "/nasty"))) {
    const std::string name = entry.path().filename().string();
    read_nasty(entry.path().string(), refused.contains(name) ? refused.at(name) : "",
               !not_utf8.contains(name));
    ++found;
  }
  EXPECT_GE(found, 20);
}

// Every window as the text has it, whichever part of it is asked for.
TEST(TextFile, TokensAreTheBytesOfTheirPlace) {
  const TempDirectory temp;
  std::mt19937 random(5);
  std::string text = "words\n";
  while (text.size() < 20'000) text.push_back(static_cast<char>(1 + random() % 255));
  write_bytes(temp.file("t"), text);
  const auto file = std::make_shared<const TextFile>(temp.file("t"), false);
  EXPECT_EQ(file->identity().hash, hash_bytes(text));
  const TextTokens part(file, 3, 19'000);
  EXPECT_EQ(part.size(), 18'997);
  for (const std::int64_t begin : {0, 1, 4095, 4096, 10'000, 18'996}) {
    for (const std::int64_t count : {0, 1, 4096, 4097, 9'000}) {
      if (begin + count > part.size()) continue;
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
      part.read(begin, tokens);
      const std::string bytes = text.substr(static_cast<std::size_t>(3 + begin), tokens.size());
      ASSERT_EQ(tokens, make_byte_tokenizer()->encode(bytes)) << begin << " " << count;
    }
  }
  std::vector<std::int32_t> beyond(2);
  error_of(ErrorKind::internal, [&] { part.read(part.size() - 1, beyond); });
}

// Characters and faults on either side of every border between pieces.
TEST(TextFile, Utf8IsCheckedAcrossPieces) {
  const TempDirectory temp;
  const std::string path = temp.file("t");
  const std::string character = "\xf0\x9f\x91\xa8";
  for (std::size_t before = (256 << 10) - 5; before <= (256 << 10) + 1; ++before) {
    const std::string head(before, 'x');
    write_bytes(path, head + character + "end");
    EXPECT_NO_THROW(TextFile(path, true)) << before;
    for (const std::string& bad : {character.substr(0, 3) + "end", std::string("\x80"),
                                   character.substr(0, 2), std::string("\xff") + head}) {
      write_bytes(path, head + bad);
      expect_in(concat("not valid UTF-8 at byte ", before, ";"),
                error_of(ErrorKind::file, [&] { TextFile(path, true); }));
    }
  }
}

TEST(TextFile, CountsWords) {
  const TempDirectory temp;
  const auto words = [&](const std::string& text) {
    write_bytes(temp.file("t"), text);
    return count_words(TextFile(temp.file("t"), false));
  };
  EXPECT_EQ(words(" "), 0);
  EXPECT_EQ(words("  one\ttwo\r\nthree "), 3);
  EXPECT_EQ(words(std::string((256 << 10) - 1, ' ') + "word across a border"), 4);
}

// A text that is changed under a running job is named; one that was only touched goes on.
TEST(TextFile, AChangeWhileItIsInUseIsAnError) {
  const TempDirectory temp;
  const std::string path = temp.file("t");
  const std::string text(10'000, 'a');
  const auto later = [&] {
    static int hours = 0;
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() + std::chrono::hours(++hours));
  };
  write_bytes(path, text);
  const auto file = std::make_shared<const TextFile>(path, false);
  const TextTokens part(file, 0, 10'000);
  std::vector<std::int32_t> tokens(10);
  later();
  EXPECT_NO_THROW(part.read(0, tokens));
  write_bytes(path, text);  // the same bytes
  later();
  EXPECT_NO_THROW(part.read(0, tokens));

  const std::string changed = "the text changed while it was in use: got ";
  write_bytes(path, std::string(10'000, 'b'));
  later();
  expect_in(path + ": " + changed + "10000 bytes, hash ",
            error_of(ErrorKind::file, [&] { part.read(0, tokens); }));
  write_bytes(path, text + "more");
  later();
  expect_in(changed + "10004 bytes, expected 10000 bytes",
            error_of(ErrorKind::file, [&] { part.read(0, tokens); }));
  write_bytes(path, std::string(5'000, 'a'));
  later();
  expect_in(changed + "5000 bytes", error_of(ErrorKind::file, [&] { part.read(0, tokens); }));
  expect_in("the file shrank while it was read: got no bytes at byte 9990",
            error_of(ErrorKind::file, [&] { part.read(9'990, tokens); }));
  write_bytes(path, text);
  later();
  EXPECT_NO_THROW(part.read(9'990, tokens));
  // A file that another took the name of is still the one that was opened.
  write_bytes(temp.file("new"), std::string(10'000, 'c'));
  std::filesystem::rename(temp.file("new"), path);
  EXPECT_NO_THROW(part.read(0, tokens));
  EXPECT_EQ(tokens[0], 'a');
}

}  // namespace
}  // namespace duet::test
