// Drawing tokens, and generation up to the end of the context (C24).
#include "train/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "models/transformer.h"
#include "tests/runtime/errors.h"

namespace duet::test {
namespace {

TEST(SampleToken, FollowsTheDistribution) {
  const std::vector<double> logits = {std::log(0.5), std::log(0.3), std::log(0.2)};
  const SampleOptions options;
  EXPECT_EQ(sample_token(logits, options, 0.0), 0);
  EXPECT_EQ(sample_token(logits, options, 0.49), 0);
  EXPECT_EQ(sample_token(logits, options, 0.51), 1);
  EXPECT_EQ(sample_token(logits, options, 0.79), 1);
  EXPECT_EQ(sample_token(logits, options, 0.81), 2);
  EXPECT_EQ(sample_token(logits, options, std::nextafter(1.0, 0.0)), 2);
}

TEST(SampleToken, Options) {
  const std::vector<double> logits = {1.0, 3.0, 2.0, 3.0};
  EXPECT_EQ(sample_token(logits, {.temperature = 0}, 0.9), 1);  // ties: the lower id
  EXPECT_EQ(sample_token(logits, {.top_k = 1}, 0.999), 1);
  EXPECT_EQ(sample_token(logits, {.top_k = 2}, 0.999), 3);
  EXPECT_EQ(sample_token(logits, {.top_k = 100}, 0.999), 0);
  EXPECT_EQ(sample_token(logits, {.top_p = 0.01}, 0.999), 1);
  EXPECT_EQ(sample_token(logits, {.top_p = 0.6}, 0.999), 3);
  EXPECT_EQ(sample_token(logits, {.temperature = 1e-3}, 0.49), 1);
  EXPECT_EQ(sample_token({{1e4, -1e4}}, {}, 0.999), 0);  // no overflow
  EXPECT_EQ(sample_token({{0.0}}, {}, 0.5), 0);
  expect_in("the logit of id 1 is nan", error_of(ErrorKind::non_finite, [] {
              sample_token({{0.0, std::nan("")}}, {}, 0.5);
            }));
}

TEST(SampleToken, RefusesOptionsOutOfRange) {
  const auto refused = [](SampleOptions o) {
    return error_of(ErrorKind::usage, [&] { validate(o); });
  };
  expect_in("temperature: got -1", refused({.temperature = -1}));
  expect_in("top_k: got -1", refused({.top_k = -1}));
  expect_in("top_p: got 0", refused({.top_p = 0}));
  expect_in("top_p: got 1.5", refused({.top_p = 1.5}));
  expect_in("max_new_tokens", refused({.max_new_tokens = -1}));
}

Transformer small_model() {
  ModelConfig config = preset("tiny", Family::llama);
  config.block_size = 16;
  config.vocab_size = 300;
  config.valid_vocab = 256;
  Transformer model(config);
  model.initialize(3);
  return model;
}

std::vector<std::int32_t> prompt_of(std::int64_t n) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
  std::iota(ids.begin(), ids.end(), 65);
  return ids;
}

TEST(Generate, SameSeedSameTokensAndEachIsStreamed) {
  const Transformer model = small_model();
  const SampleOptions options{.max_new_tokens = 10, .seed = 7};
  std::vector<std::int32_t> streamed;
  const Sample a = generate(model, prompt_of(4), options, [&](std::int32_t id) {
    streamed.push_back(id);
    return true;
  });
  EXPECT_EQ(a.tokens.size(), 10U);
  EXPECT_EQ(a.tokens, streamed);
  for (const std::int32_t id : a.tokens) EXPECT_TRUE(id >= 0 && id < 256);
  EXPECT_EQ(generate(model, prompt_of(4), options).tokens, a.tokens);
  SampleOptions other = options;
  other.seed = 8;
  EXPECT_NE(generate(model, prompt_of(4), other).tokens, a.tokens);
  EXPECT_FALSE(a.context_full);
  // The caller may stop.
  EXPECT_EQ(
      generate(model, prompt_of(4), options, [](std::int32_t) { return false; }).tokens.size(), 1U);
}

// A text drawn in windows goes on with the draws of its own seed: the same as in one piece here,
// where nothing is dropped from the context.
TEST(Generate, LaterWindowsDrawWhatTheWholeTextWould) {
  const Transformer model = small_model();
  SampleOptions options{.max_new_tokens = 10, .seed = 7};
  const std::vector<std::int32_t> whole = generate(model, prompt_of(4), options).tokens;
  options.max_new_tokens = 5;
  std::vector<std::int32_t> text = prompt_of(4);
  std::vector<std::int32_t> parts;
  for (int window = 0; window < 2; ++window) {
    const std::vector<std::int32_t> part = generate(model, text, options).tokens;
    text.insert(text.end(), part.begin(), part.end());
    parts.insert(parts.end(), part.begin(), part.end());
    options.drawn += std::ssize(part);
  }
  EXPECT_EQ(parts, whole);
}

// The cache changes speed, not tokens: each one is the argmax of a whole forward pass.
TEST(Generate, GreedyIsTheArgmaxOfAWholeForwardPass) {
  const Transformer model = small_model();
  std::vector<std::int32_t> ids = prompt_of(3);
  const Sample sample = generate(model, ids, {.max_new_tokens = 13, .temperature = 0});
  ASSERT_EQ(sample.tokens.size(), 13U);
  for (const std::int32_t token : sample.tokens) {
    Tensor input = Tensor::empty({1, static_cast<std::int64_t>(ids.size())}, DType::i32);
    std::copy(ids.begin(), ids.end(), input.mutable_data<std::int32_t>());
    const NoGradGuard no_grad;
    const Tensor logits = model.logits(input);
    const float* row = logits.data<float>() + (logits.size(1) - 1) * logits.stride(1);
    EXPECT_EQ(std::max_element(row, row + 256) - row, token);
    ids.push_back(token);
  }
}

TEST(Generate, StopsAtTheEndOfTheContext) {
  const Transformer model = small_model();
  const SampleOptions ten{.max_new_tokens = 10};
  const Sample last = generate(model, prompt_of(15), ten);
  EXPECT_EQ(last.tokens.size(), 1U);
  EXPECT_TRUE(last.context_full);
  const Sample none = generate(model, prompt_of(16), ten);
  EXPECT_TRUE(none.tokens.empty());
  EXPECT_TRUE(none.context_full);
  expect_in("17 tokens do not fit the model's context of 16",
            error_of(ErrorKind::usage, [&] { generate(model, prompt_of(17), ten); }));
  expect_in("it is empty", error_of(ErrorKind::usage, [&] { generate(model, {}, ten); }));
  // Exactly full cuts nothing off.
  EXPECT_FALSE(generate(model, prompt_of(6), ten).context_full);
}

}  // namespace
}  // namespace duet::test
