// The byte tokenizer: every byte survives, and only its own tokenizer.json is taken.
#include "train/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/runtime/errors.h"
#include "tests/runtime/temp_directory.h"

namespace duet::test {
namespace {

TEST(ByteTokenizer, RoundTripsEveryByte) {
  std::string all;
  for (int b = 0; b < 256; ++b) all.push_back(static_cast<char>(b));
  const auto tokenizer = make_byte_tokenizer();
  const std::vector<std::int32_t> ids = tokenizer->encode(all);
  ASSERT_EQ(ids.size(), 256U);
  for (std::int32_t b = 0; b < 256; ++b) EXPECT_EQ(ids[static_cast<std::size_t>(b)], b);
  EXPECT_EQ(tokenizer->decode(ids), all);
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  // The literal text of a special token stays text.
  EXPECT_EQ(tokenizer->encode("<|endoftext|>").size(), 13U);
}

TEST(ByteTokenizer, RefusesForeignIds) {
  const auto tokenizer = make_byte_tokenizer();
  for (const std::int32_t id : {-1, 256}) {
    expect_in("is outside [0, 256)",
              error_of(ErrorKind::index, [&] { tokenizer->decode(std::vector{id}); }));
  }
}

TEST(ByteTokenizer, WritesAFileThatItReads) {
  const TempDirectory temp;
  const auto tokenizer = make_byte_tokenizer();
  const std::string path = temp.file("tokenizer.json");
  write_bytes(path, tokenizer->json());
  const auto again = open_tokenizer(path);
  EXPECT_EQ(again->name(), "byte");
  EXPECT_EQ(again->hash(), tokenizer->hash());
  const auto tree = nlohmann::json::parse(tokenizer->json());
  EXPECT_EQ(tree["model"]["vocab"].size(), 256U);
  EXPECT_EQ(tree["model"]["vocab"]["A"], 65);
  EXPECT_EQ(tree["model"]["vocab"]["\u0120"], 32);  // GPT-2's spelling of a space
}

TEST(ByteTokenizer, RefusesWhatItDoesNotImplement) {
  const auto broken = [](auto&& change) {
    auto tree = nlohmann::json::parse(make_byte_tokenizer()->json());
    change(tree);
    const std::string json = tree.dump();
    return error_of(ErrorKind::file, [&] { parse_tokenizer(json, "t.json"); });
  };
  using Json = nlohmann::json;
  expect_in("model.type \"WordPiece\" is not supported",
            broken([](Json& t) { t["model"]["type"] = "WordPiece"; }));
  expect_in("no object \"model\"", broken([](Json& t) { t.erase("model"); }));
  expect_in("merges", broken([](Json& t) { t["model"]["merges"] = {"a b"}; }));
  expect_in("does not map byte 66", broken([](Json& t) { t["model"]["vocab"]["B"] = 65; }));
  expect_in("expected an object of 256", broken([](Json& t) { t["model"]["vocab"].erase("B"); }));
  expect_in("normalizer", broken([](Json& t) { t["normalizer"] = {{"type", "NFC"}}; }));
  expect_in("added_tokens", broken([](Json& t) { t["added_tokens"] = {{{"id", 256}}}; }));
  expect_in("not a tokenizer.json",
            error_of(ErrorKind::file, [] { parse_tokenizer("{\"model\":", "t.json"); }));
  expect_in("a gzip file",
            error_of(ErrorKind::file, [] { parse_tokenizer("\x1f\x8b\x08", "t.json"); }));
}

}  // namespace
}  // namespace duet::test
