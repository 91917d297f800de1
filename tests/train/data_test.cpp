// The parts of a text, and the order of the windows.
#include "train/data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "runtime/hash.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/temp_directory.h"
#include "tests/train/vector_tokens.h"

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
  EXPECT_EQ(set.train->size(), 904);  // floor(0.9 n), nanoGPT's split
  EXPECT_EQ(set.val->size(), 101);
  EXPECT_EQ(all_tokens(*set.val)[0], 904 % 251);
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
  EXPECT_EQ(set.train->size(), 100);
  EXPECT_EQ(all_tokens(*set.val), (std::vector<std::int32_t>{'b', 'c', 'd'}));
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
  EXPECT_EQ(load_dataset(config_for(temp.file("t"), 64), *make_byte_tokenizer()).train->size(), 65);
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
  const Batch batch = training_batch(VectorTokens(tokens), order, 0, 3, 8);
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
