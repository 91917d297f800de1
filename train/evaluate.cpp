#include "train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "models/transformer.h"
#include "runtime/stop.h"

namespace duet {
namespace {

// Windows over `pairs` pairs (token, next token): window j begins at j * stride and counts what no
// earlier window counted.
struct Windows {
  std::int64_t pairs, block, stride;

  std::int64_t count() const {
    return pairs <= block ? 1 : 1 + (pairs - block + stride - 1) / stride;
  }
  std::int64_t begin(std::int64_t j) const { return j * stride; }
  std::int64_t end(std::int64_t j) const { return std::min(pairs, begin(j) + block); }
  std::int64_t counted_from(std::int64_t j) const { return j == 0 ? 0 : end(j - 1); }
};

Batch eval_batch(const std::vector<std::int32_t>& tokens, const Windows& windows,
                 const std::vector<std::int64_t>& chosen, std::size_t first, std::size_t rows) {
  const std::int64_t block = windows.block;
  const auto b_size = static_cast<std::int64_t>(rows);
  Batch batch{Tensor::empty({b_size, block}, DType::i32),
              Tensor::empty({b_size, block}, DType::i32)};
  auto* ids = batch.ids.mutable_data<std::int32_t>();
  auto* targets = batch.targets.mutable_data<std::int32_t>();
  for (std::size_t r = 0; r < rows; ++r) {
    const std::int64_t j = chosen[first + r];
    for (std::int64_t t = 0; t < block; ++t) {
      const std::int64_t pair = windows.begin(j) + t;
      const bool inside = pair < windows.end(j);
      const bool counts = inside && pair >= windows.counted_from(j);
      *ids++ = inside ? tokens[static_cast<std::size_t>(pair)] : 0;
      *targets++ = counts ? tokens[static_cast<std::size_t>(pair) + 1] : kIgnoredTarget;
      batch.counted += counts ? 1 : 0;
    }
  }
  return batch;
}

}  // namespace

EvalResult evaluate(const Transformer& model, const TokenPart& part, const EvalOptions& options) {
  const std::int64_t block = model.config().block_size;
  const auto n = static_cast<std::int64_t>(part.tokens.size());
  check(n >= 2, ErrorKind::file, "eval: the text is too short: found ", n,
        " tokens, needed at least 2");
  check(options.stride >= 0 && options.stride <= block, ErrorKind::usage, "stride: got ",
        options.stride, ", expected 1 to block_size (", block, "), or 0 for block_size");
  const Windows windows{n - 1, block, options.stride == 0 ? block : options.stride};
  const std::int64_t all = windows.count();
  const std::int64_t wanted =
      options.batches == 0 ? all : std::min(all, options.batches * options.batch_size);
  std::vector<std::int64_t> chosen;
  for (std::int64_t i = 0; i < wanted; ++i) chosen.push_back(i * all / wanted);

  const NoGradGuard no_grad;
  EvalResult result;
  double total = 0;
  const auto batch_size = static_cast<std::size_t>(options.batch_size);
  for (std::size_t i = 0; i < chosen.size(); i += batch_size) {
    check_stop();
    const std::size_t rows = std::min(batch_size, chosen.size() - i);
    const Batch batch =
        to_device(eval_batch(part.tokens, windows, chosen, i, rows), model.device());
    LinearCrossEntropyOptions loss_options;
    loss_options.ignore_index = kIgnoredTarget;
    const Tensor loss = model.loss(batch.ids, batch.targets, loss_options, ForwardContext{});
    total += loss.item() * static_cast<double>(batch.counted);
    result.tokens += batch.counted;
  }
  result.windows = wanted;
  result.window = block;
  result.stride = windows.stride;
  result.loss = total / static_cast<double>(result.tokens);
  result.ppl = std::exp(result.loss);
  const double tokens_per_byte = static_cast<double>(n) / static_cast<double>(part.bytes);
  result.bits_per_byte = result.loss / std::numbers::ln2 * tokens_per_byte;
  return result;
}

std::int64_t count_words(std::string_view text) {
  std::int64_t words = 0;
  bool inside = false;
  for (const char c : text) {
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    if (!space && !inside) ++words;
    inside = !space;
  }
  return words;
}

double perplexity_per_word(const EvalResult& result, std::string_view text) {
  const auto words = static_cast<double>(std::max<std::int64_t>(1, count_words(text)));
  return std::exp(result.loss * static_cast<double>(result.tokens) / words);
}

}  // namespace duet
