// Generation with a key/value cache, one token at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace duet {

struct Transformer;  // models/transformer.h

struct SampleOptions {
  std::int64_t max_new_tokens = 200;
  double temperature = 1.0;  // 0: greedy
  std::int64_t top_k = 0;    // 0: all
  double top_p = 1.0;        // keep the smallest set of likeliest tokens that holds this much
  std::uint64_t seed = 1337;
  // Tokens that the same text drew before, in earlier windows: every token of a text has a draw of
  // its own, and no seed ever repeats the draws of another.
  std::int64_t drawn = 0;
};

struct Sample {
  std::vector<std::int32_t> tokens;  // the new ones
  bool context_full = false;         // stopped because prompt and tokens fill block_size
};

// Calls on_token as each token is drawn; stops early when it returns false. The same seed and
// prompt give the same tokens. Throws Error(usage) for an empty prompt, one longer than
// block_size, or options out of range; Error(non_finite) when the logits are.
Sample generate(const Transformer& model, std::span<const std::int32_t> prompt,
                const SampleOptions& options,
                const std::function<bool(std::int32_t id)>& on_token = {});

// Throws Error(usage) naming the option that is out of range.
void validate(const SampleOptions& options);

// One draw from logits, with `uniform` in [0, 1). Ties go to the lower id.
std::int32_t sample_token(std::span<const double> logits, const SampleOptions& options,
                          double uniform);

}  // namespace duet
