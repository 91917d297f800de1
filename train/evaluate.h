// Evaluation: the mean loss over fixed windows of a text.
#pragma once

#include <cstdint>
#include <optional>

#include "train/data.h"

namespace duet {

struct Transformer;  // models/transformer.h

struct EvalOptions {
  std::int64_t batch_size = 12;
  std::int64_t batches = 0;  // 0: the whole part; else so many, spread evenly, always the same
  // Targets that count per window: 0 = block_size (windows side by side); less gives every counted
  // target at least block_size - stride tokens of context, at more cost.
  std::int64_t stride = 0;
};

struct EvalResult {
  double loss = 0;  // nats per token
  double ppl = 0;
  double bits_per_byte = 0;
  std::int64_t tokens = 0;  // targets that counted
  std::int64_t windows = 0;
  std::int64_t window = 0, stride = 0;  // the protocol
  std::optional<double> accuracy{};     // of a task that has labels instead of a text
};

// No dropout, no graph, no change of any random stream. Throws Error(file) for fewer than 2 tokens,
// Stopped when a stop is requested.
EvalResult evaluate(const Transformer& model, const TokenSource& part, const EvalOptions& options);

// exp(summed loss / words) of a text with so many words (count_words), of which the result was
// measured on the whole.
double perplexity_per_word(const EvalResult& result, std::int64_t words);

}  // namespace duet
