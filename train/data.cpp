#include "train/data.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/memory_ops.h"
#include "runtime/random.h"

namespace duet {
namespace {

void check_length(const TokenSource& part, std::int64_t needed, const std::string& path,
                  const char* what, const char* advice) {
  check(part.size() >= needed, ErrorKind::file, path, ": the ", what, " is too short: found ",
        part.size(), " tokens, needed at least ", needed, "; ", advice);
}

}  // namespace

Dataset load_dataset(const RunConfig& config, const Tokenizer& tokenizer) {
  check(!config.data.empty(), ErrorKind::usage,
        "data: no training text is named; give --data FILE");
  check(tokenizer.name() == "byte", ErrorKind::internal, "data: a text is read as bytes, got the ",
        tokenizer.name(), " tokenizer");
  Dataset set;
  const auto text = std::make_shared<const TextFile>(config.data, config.strict_utf8);
  set.data = text->identity();
  if (config.val_data.empty()) {
    const std::int64_t cut = text->size() / 10 * 9 + text->size() % 10 * 9 / 10;
    set.train = std::make_unique<TextTokens>(text, 0, cut);
    set.val = std::make_unique<TextTokens>(text, cut, text->size());
  } else {
    const auto val = std::make_shared<const TextFile>(config.val_data, config.strict_utf8);
    set.val_data = val->identity();
    set.train = std::make_unique<TextTokens>(text, 0, text->size());
    set.val = std::make_unique<TextTokens>(val, 0, val->size());
  }
  const bool split = config.val_data.empty();
  check_length(*set.train, config.model.block_size + 1, config.data,
               split ? "training part (the first 90 %)" : "text",
               "give more text, or a smaller block_size");
  check_length(*set.val, 2, split ? config.data : config.val_data,
               split ? "validation part (the last 10 %)" : "text", "give more text");
  return set;
}

WindowOrder::WindowOrder(std::int64_t tokens, std::int64_t block, std::uint64_t seed)
    : pairs_(tokens - 1), block_(block), windows_((pairs_ + block - 1) / block), seed_(seed) {
  check(block >= 1 && pairs_ >= block, ErrorKind::internal, "windows: ", tokens,
        " tokens do not fill one window of ", block + 1);
  check(windows_ <= std::numeric_limits<std::uint32_t>::max(), ErrorKind::usage, "block_size: got ",
        block, ", which cuts ", tokens, " tokens into ", windows_, " windows, expected at most ",
        std::numeric_limits<std::uint32_t>::max(), "; raise block_size");
}

WindowOrder::Window WindowOrder::window(std::int64_t sample) {
  const std::int64_t epoch = sample / windows_;
  if (epoch != epoch_) {
    const RandomKey key{seed_, static_cast<std::uint32_t>(epoch), 0, kUseDataOrder, 0};
    // Number `draw` in [0, bound); 64 bits, so that the remainder's bias is below 2^-32.
    const auto below = [&](std::int64_t draw, std::int64_t bound) {
      const auto index = static_cast<std::uint64_t>(draw) * 2;
      const std::uint64_t wide =
          std::uint64_t{random_u32(key, index)} << 32 | random_u32(key, index + 1);
      return static_cast<std::int64_t>(wide % static_cast<std::uint64_t>(bound));
    };
    offset_ = below(0, pairs_);
    permutation_.resize(static_cast<std::size_t>(windows_));
    std::iota(permutation_.begin(), permutation_.end(), 0U);
    for (std::int64_t i = windows_ - 1; i > 0; --i) {  // Fisher and Yates
      std::swap(permutation_[static_cast<std::size_t>(i)],
                permutation_[static_cast<std::size_t>(below(i, i + 1))]);
    }
    epoch_ = epoch;
  }
  const std::int64_t slot = permutation_[static_cast<std::size_t>(sample % windows_)];
  return {(offset_ + slot * block_) % pairs_, std::min(block_, pairs_ - slot * block_)};
}

Batch training_batch(const TokenSource& tokens, WindowOrder& order, std::int64_t sample,
                     std::int64_t batch_size, std::int64_t block) {
  const MemoryScope scope("batch");
  Batch batch{Tensor::empty({batch_size, block}, DType::i32),
              Tensor::empty({batch_size, block}, DType::i32)};
  auto* ids = batch.ids.mutable_data<std::int32_t>();
  auto* targets = batch.targets.mutable_data<std::int32_t>();
  const std::int64_t pairs = tokens.size() - 1;
  std::vector<std::int32_t> run(static_cast<std::size_t>(std::min(block, pairs)) + 1);
  for (std::int64_t b = 0; b < batch_size; ++b) {
    const WindowOrder::Window window = order.window(sample + b);
    for (std::int64_t t = 0; t < block;) {
      // The pairs up to the end of the window, or of the text.
      const std::int64_t pair = (window.begin + t) % pairs;
      const std::int64_t count = std::min(block - t, pairs - pair);
      tokens.read(pair, {run.data(), static_cast<std::size_t>(count) + 1});
      for (std::int64_t i = 0; i < count; ++i, ++t) {
        ids[b * block + t] = run[static_cast<std::size_t>(i)];
        targets[b * block + t] =
            t < window.count ? run[static_cast<std::size_t>(i) + 1] : kIgnoredTarget;
      }
    }
    batch.counted += window.count;
  }
  return batch;
}

Batch to_device(const Batch& batch, Device device) {
  if (batch.ids.device() == device) return batch;
  const MemoryScope scope("batch");
  Batch there{to_device(batch.ids, device), to_device(batch.targets, device), batch.counted};
  if (batch.rows.defined()) there.rows = to_device(batch.rows, device);
  return there;
}

}  // namespace duet
