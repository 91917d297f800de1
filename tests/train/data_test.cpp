// Reading texts, splitting them, and the order of the windows.
#include "train/data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "runtime/hash.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/same_text.h"
#include "tests/runtime/temp_directory.h"

namespace duet::test {
namespace {

RunConfig config_for(const std::string& data, std::int64_t block) {
  RunConfig config;
  config.data = data;
  config.model.block_size = block;
  return config;
}

TEST(Data, SplitsOffTheLastTenth) {
  const TempDirectory temp;
  std::string text;
  for (int i = 0; i < 1005; ++i) text.push_back(static_cast<char>(i % 251));
  write_bytes(temp.file("t"), text);
  const Dataset set = load_dataset(config_for(temp.file("t"), 8), *make_byte_tokenizer());
  EXPECT_EQ(set.train.tokens.size(), 904U);  // floor(0.9 n), nanoGPT's split
  EXPECT_EQ(set.val.tokens.size(), 101U);
  EXPECT_EQ(set.val.tokens[0], 904 % 251);
  EXPECT_EQ(set.data.bytes, 1005U);
  EXPECT_EQ(set.data.hash, hash_bytes(text));
  EXPECT_TRUE(set.val_data.path.empty());
}

TEST(Data, TakesAValidationFile) {
  const TempDirectory temp;
  write_bytes(temp.file("t"), std::string(100, 'a'));
  write_bytes(temp.file("v"), "bcd");
  RunConfig config = config_for(temp.file("t"), 8);
  config.val_data = temp.file("v");
  const Dataset set = load_dataset(config, *make_byte_tokenizer());
  EXPECT_EQ(set.train.tokens.size(), 100U);
  EXPECT_EQ(set.val.tokens, (std::vector<std::int32_t>{'b', 'c', 'd'}));
}

TEST(Data, TooShortSaysWhatIsNeeded) {
  const TempDirectory temp;
  const auto message = [&](std::size_t bytes) {
    write_bytes(temp.file("t"), std::string(bytes, 'a'));
    return error_of(ErrorKind::file,
                    [&] { load_dataset(config_for(temp.file("t"), 64), *make_byte_tokenizer()); });
  };
  expect_in("found 63 tokens, needed at least 65", message(70));
  expect_in("the file is empty", message(0));
  expect_in("--data FILE", error_of(ErrorKind::usage, [&] {
              load_dataset(config_for("", 64), *make_byte_tokenizer());
            }));
  expect_in(temp.file("none"), error_of(ErrorKind::file, [&] {
              load_dataset(config_for(temp.file("none"), 64), *make_byte_tokenizer());
            }));
  // 73 bytes: 65 train, 8 validate.
  write_bytes(temp.file("t"), std::string(73, 'a'));
  EXPECT_EQ(
      load_dataset(config_for(temp.file("t"), 64), *make_byte_tokenizer()).train.tokens.size(),
      65U);
}

TEST(Data, NamesWhatIsNoText) {
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

TEST(Data, StrictUtf8NamesTheOffset) {
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
TEST(Data, NastyFiles) {
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

TEST(WindowOrder, CoversEveryPairOnceAnEpoch) {
  for (const std::int64_t tokens : {9, 10, 16, 17, 18, 25, 1000}) {
    const std::int64_t block = 8;
    WindowOrder order(tokens, block, 1337);
    const std::int64_t windows = order.windows_per_epoch();
    EXPECT_EQ(windows, (tokens - 1 + block - 1) / block);
    for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
      std::vector<int> seen(static_cast<std::size_t>(tokens - 1));
      for (std::int64_t i = 0; i < windows; ++i) {
        const WindowOrder::Window w = order.window(epoch * windows + i);
        ASSERT_GE(w.count, 1);
        ASSERT_LE(w.count, block);
        for (std::int64_t t = 0; t < w.count; ++t) {
          ++seen[static_cast<std::size_t>((w.begin + t) % (tokens - 1))];
        }
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << tokens << " tokens, epoch " << epoch;
    }
  }
}

TEST(WindowOrder, IsAPureFunctionOfSeedAndSample) {
  const auto list = [](WindowOrder& order, const std::vector<std::int64_t>& samples) {
    std::vector<std::pair<std::int64_t, std::int64_t>> out;
    for (const std::int64_t s : samples) out.emplace_back(order.window(s).begin, s);
    return out;
  };
  std::vector<std::int64_t> samples(300);
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<std::int64_t>(i);
  WindowOrder straight(1000, 8, 1);
  WindowOrder backward(1000, 8, 1);
  WindowOrder other(1000, 8, 2);
  const auto expected = list(straight, samples);
  std::vector<std::int64_t> reversed(samples.rbegin(), samples.rend());
  auto found = list(backward, reversed);
  std::reverse(found.begin(), found.end());
  EXPECT_EQ(found, expected);
  EXPECT_NE(list(other, samples), expected);
  // Epochs differ: 125 windows each, in another order and cut at another place.
  std::set<std::int64_t> first;
  std::set<std::int64_t> second;
  for (std::int64_t i = 0; i < 125; ++i) {
    first.insert(straight.window(i).begin);
    second.insert(straight.window(125 + i).begin);
  }
  EXPECT_NE(first, second);
}

TEST(WindowOrder, BatchesHoldTextAndItsNextTokens) {
  std::vector<std::int32_t> tokens(20);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(100 + i);
  WindowOrder order(20, 8, 3);  // 19 pairs: windows of 8, 8 and 3
  const Batch batch = training_batch(tokens, order, 0, 3, 8);
  EXPECT_EQ(batch.counted, 19);
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < batch.ids.numel(); ++i) {
    const std::int32_t id = batch.ids.data<std::int32_t>()[i];
    const std::int32_t target = batch.targets.data<std::int32_t>()[i];
    if (target == kIgnoredTarget) continue;
    EXPECT_EQ(target, id + 1);
    ++counted;
  }
  EXPECT_EQ(counted, 19);
}

}  // namespace
}  // namespace duet::test
