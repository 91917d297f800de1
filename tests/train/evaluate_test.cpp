// Evaluation: what is counted, once each, and the protocol of windows and strides.
#include "train/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "models/transformer.h"
#include "tests/runtime/errors.h"
#include "tests/train/train_support.h"
#include "tests/train/vector_tokens.h"

namespace duet::test {
namespace {

Transformer small_model() {
  ModelConfig config = preset("tiny", Family::llama);
  config.n_layer = 1;
  config.block_size = 16;
  config.dropout = 0.5;  // must not act
  Transformer model(config, DType::f64);
  model.initialize(3);
  return model;
}

VectorTokens part_of(std::int64_t n) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < n; ++i) {
    tokens.push_back(static_cast<std::int32_t>((i * i + 3 * i) % 256));
  }
  return VectorTokens(std::move(tokens));
}

// The loss of every target by itself, given up to 16 tokens before it.
double loss_of_pair(const Transformer& model, const TokenSource& part, std::int64_t begin,
                    std::int64_t pair) {
  const std::int64_t n = pair - begin + 1;
  Tensor ids = Tensor::empty({1, n}, DType::i32);
  Tensor targets = Tensor::full({1, n}, kIgnoredTarget, DType::i32);
  part.read(begin, {ids.mutable_data<std::int32_t>(), static_cast<std::size_t>(n)});
  part.read(pair + 1, {targets.mutable_data<std::int32_t>() + n - 1, 1});
  return model.loss(ids, targets).item();
}

TEST(Evaluate, IsTheMeanOverEveryTargetOnce) {
  const Transformer model = small_model();
  for (const std::int64_t n : {2, 10, 17, 18, 50}) {
    for (const std::int64_t stride : {0, 4, 16}) {
      SCOPED_TRACE(concat(n, " tokens, stride ", stride));
      const VectorTokens part = part_of(n);
      const EvalResult result = evaluate(model, part, {.batch_size = 3, .stride = stride});
      EXPECT_EQ(result.tokens, n - 1);
      double total = 0;
      const std::int64_t step = stride == 0 ? 16 : stride;
      for (std::int64_t pair = 0; pair < n - 1; ++pair) {
        // The first window reaches pair 15, each further one `step` more.
        const std::int64_t window = pair < 16 ? 0 : (pair - 16) / step + 1;
        total += loss_of_pair(model, part, window * step, pair);
      }
      EXPECT_NEAR(result.loss, total / static_cast<double>(n - 1), 1e-10);
      EXPECT_DOUBLE_EQ(result.ppl, std::exp(result.loss));
      EXPECT_NEAR(result.bits_per_byte, result.loss / std::log(2.0), 1e-12);
      EXPECT_EQ(result.window, 16);
      EXPECT_EQ(result.stride, step);
    }
  }
}

TEST(Evaluate, APartIsAlwaysTheSameOneSpreadOverTheText) {
  const Transformer model = small_model();
  const VectorTokens part = part_of(1000);
  const EvalOptions options{.batch_size = 2, .batches = 5};
  const EvalResult a = evaluate(model, part, options);
  EXPECT_EQ(a.windows, 10);
  EXPECT_EQ(a.tokens, 160);
  EXPECT_EQ(evaluate(model, part, options).loss, a.loss);
  EXPECT_EQ(evaluate(model, part, {.batch_size = 2, .batches = 1000}).tokens, 999);
}

TEST(Evaluate, RefusesAndStops) {
  const Transformer model = small_model();
  expect_in("found 1 tokens, needed at least 2",
            error_of(ErrorKind::file, [&] { evaluate(model, part_of(1), {}); }));
  expect_in("stride: got 17",
            error_of(ErrorKind::usage, [&] { evaluate(model, part_of(20), {.stride = 17}); }));
  const StopScope stop;
  request_stop(2);
  EXPECT_THROW(evaluate(model, part_of(20), {}), Stopped);
}

TEST(Evaluate, Words) {
  EvalResult result;
  result.loss = std::log(2.0);
  result.tokens = 12;
  EXPECT_NEAR(perplexity_per_word(result, 3), 16.0, 1e-12);  // 4 tokens a word
}

}  // namespace
}  // namespace duet::test
