#include "train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "models/transformer.h"
#include "runtime/nan_sign.h"
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

// The windows in `rows`.
Batch eval_batch(const TokenSource& tokens, const Windows& windows,
                 const std::vector<std::int64_t>& rows) {
  const std::int64_t block = windows.block;
  Batch batch{Tensor::empty({std::ssize(rows), block}, DType::i32),
              Tensor::empty({std::ssize(rows), block}, DType::i32)};
  auto* ids = batch.ids.mutable_data<std::int32_t>();
  auto* targets = batch.targets.mutable_data<std::int32_t>();
  std::vector<std::int32_t> window;
  for (const std::int64_t j : rows) {
    // A token more than there are pairs.
    window.resize(static_cast<std::size_t>(windows.end(j) - windows.begin(j)) + 1);
    tokens.read(windows.begin(j), window);
    for (std::int64_t t = 0; t < block; ++t) {
      const std::int64_t pair = windows.begin(j) + t;
      const bool inside = pair < windows.end(j);
      const bool counts = inside && pair >= windows.counted_from(j);
      *ids++ = inside ? window[static_cast<std::size_t>(t)] : 0;
      *targets++ = counts ? window[static_cast<std::size_t>(t) + 1] : kIgnoredTarget;
      batch.counted += counts ? 1 : 0;
    }
  }
  return batch;
}

}  // namespace

EvalResult evaluate(const Transformer& model, const TokenSource& part, const EvalOptions& options) {
  const std::int64_t block = model.config().block_size;
  const std::int64_t n = part.size();
  check(n >= 2, ErrorKind::file, "eval: the text is too short: found ", n,
        " tokens, needed at least 2");
  check(options.stride >= 0 && options.stride <= block, ErrorKind::usage, "stride: got ",
        options.stride, ", expected 1 to block_size (", block, "), or 0 for block_size");
  const Windows windows{n - 1, block, options.stride == 0 ? block : options.stride};
  const std::int64_t all = windows.count();
  const std::int64_t wanted =
      options.batches == 0 ? all : std::min(all, options.batches * options.batch_size);

  const NoGradGuard no_grad;
  EvalResult result;
  double total = 0;
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < wanted; i += options.batch_size) {
    check_stop();
    rows.clear();
    for (std::int64_t k = i; k < std::min(wanted, i + options.batch_size); ++k) {
      rows.push_back(k * all / wanted);  // spread evenly
    }
    const Batch batch = to_device(eval_batch(part, windows, rows), model.device());
    LinearCrossEntropyOptions loss_options;
    loss_options.ignore_index = kIgnoredTarget;
    const Tensor loss = model.loss(batch.ids, batch.targets, loss_options, ForwardContext{});
    total += loss.item() * static_cast<double>(batch.counted);
    result.tokens += batch.counted;
  }
  result.windows = wanted;
  result.window = block;
  result.stride = windows.stride;
  result.loss = without_nan_sign(total / static_cast<double>(result.tokens));
  result.ppl = std::exp(result.loss);
  const double tokens_per_byte = static_cast<double>(n) / static_cast<double>(part.bytes());
  result.bits_per_byte = result.loss / std::numbers::ln2 * tokens_per_byte;
  return result;
}

double perplexity_per_word(const EvalResult& result, std::int64_t words) {
  return std::exp(result.loss * static_cast<double>(result.tokens) /
                  static_cast<double>(std::max<std::int64_t>(1, words)));
}

}  // namespace duet
