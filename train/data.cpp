#include "train/data.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/file_system.h"
#include "runtime/hash.h"
#include "runtime/memory_ops.h"
#include "runtime/random.h"

namespace duet {
namespace {

// Binary formats and UTF-16 hold bytes that no UTF-8 text has. A text may well begin with "%PDF";
// a Git LFS pointer and an HTML page are texts, but not the ones that were meant.
std::optional<Magic> not_a_text(std::string_view head) {
  const std::optional<Magic> magic = describe_magic(head);
  if (magic && (head[0] == 'v' || magic->what.find("HTML") != std::string_view::npos)) {
    return magic;
  }
  // The head may end inside a character.
  const std::string_view whole =
      head.substr(0, head.size() - std::min<std::size_t>(head.size(), 3));
  const bool binary = whole.find('\0') != std::string_view::npos || first_invalid_utf8(whole) >= 0;
  if (magic && binary) return magic;
  // UTF-16 without its mark: Latin letters have a zero in every second byte.
  std::size_t zeros[2] = {0, 0};
  for (std::size_t i = 0; i < head.size(); ++i) zeros[i % 2] += head[i] == '\0' ? 1 : 0;
  const std::size_t half = head.size() / 2;
  if (half >= 8 &&
      ((zeros[0] > half * 3 / 4 && zeros[1] == 0) || (zeros[1] > half * 3 / 4 && zeros[0] == 0))) {
    return Magic{"UTF-16 text", "convert it to UTF-8 first (iconv -t UTF-8)"};
  }
  return std::nullopt;
}

TokenPart tokenise(const Tokenizer& tokenizer, std::string_view text) {
  return {tokenizer.encode(text), text.size()};
}

void check_length(const TokenPart& part, std::int64_t needed, const std::string& path,
                  const char* what, const char* advice) {
  const auto found = static_cast<std::int64_t>(part.tokens.size());
  check(found >= needed, ErrorKind::file, path, ": the ", what, " is too short: found ", found,
        " tokens, needed at least ", needed, "; ", advice);
}

}  // namespace

std::int64_t first_invalid_utf8(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::size_t length = utf8_length(bytes.substr(at, 4));
    if (length == 0) return static_cast<std::int64_t>(at);
    at += length;
  }
  return -1;
}

std::string read_text(const std::string& path, bool strict_utf8, FileIdentity* identity) {
  std::string text = file_system().read_file(path, std::numeric_limits<std::int64_t>::max());
  check(!text.empty(), ErrorKind::file, path, ": the file is empty; expected a text");
  if (const auto magic = not_a_text(std::string_view(text).substr(0, 512))) {
    throw Error(ErrorKind::file,
                concat(path, ": expected a text, found ", magic->what, "; ", magic->advice));
  }
  if (strict_utf8) {
    const std::int64_t bad = first_invalid_utf8(text);
    check(bad < 0, ErrorKind::file, path, ": not valid UTF-8 at byte ", bad,
          "; repair the text, or leave out --strict_utf8 to take bytes as they are");
  }
  if (identity != nullptr) *identity = {path, text.size(), hash_bytes(text)};
  return text;
}

Dataset load_dataset(const RunConfig& config, const Tokenizer& tokenizer) {
  check(!config.data.empty(), ErrorKind::usage,
        "data: no training text is named; give --data FILE");
  Dataset set;
  const std::string text = read_text(config.data, config.strict_utf8, &set.data);
  if (config.val_data.empty()) {
    const std::size_t cut = text.size() / 10 * 9 + text.size() % 10 * 9 / 10;
    set.train = tokenise(tokenizer, std::string_view(text).substr(0, cut));
    set.val = tokenise(tokenizer, std::string_view(text).substr(cut));
  } else {
    set.train = tokenise(tokenizer, text);
    set.val = tokenise(tokenizer, read_text(config.val_data, config.strict_utf8, &set.val_data));
  }
  const bool split = config.val_data.empty();
  check_length(set.train, config.model.block_size + 1, config.data,
               split ? "training part (the first 90 %)" : "text",
               "give more text, or a smaller block_size");
  check_length(set.val, 2, split ? config.data : config.val_data,
               split ? "validation part (the last 10 %)" : "text", "give more text");
  return set;
}

WindowOrder::WindowOrder(std::int64_t tokens, std::int64_t block, std::uint64_t seed)
    : pairs_(tokens - 1), block_(block), windows_((pairs_ + block - 1) / block), seed_(seed) {
  check(block >= 1 && pairs_ >= block, ErrorKind::internal, "windows: ", tokens,
        " tokens do not fill one window of ", block + 1);
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
    for (std::int64_t i = 0; i < windows_; ++i) permutation_[static_cast<std::size_t>(i)] = i;
    for (std::int64_t i = windows_ - 1; i > 0; --i) {  // Fisher and Yates
      std::swap(permutation_[static_cast<std::size_t>(i)],
                permutation_[static_cast<std::size_t>(below(i, i + 1))]);
    }
    epoch_ = epoch;
  }
  const std::int64_t slot = permutation_[static_cast<std::size_t>(sample % windows_)];
  return {(offset_ + slot * block_) % pairs_, std::min(block_, pairs_ - slot * block_)};
}

Batch training_batch(std::span<const std::int32_t> tokens, WindowOrder& order, std::int64_t sample,
                     std::int64_t batch_size, std::int64_t block) {
  const MemoryScope scope("batch");
  Batch batch{Tensor::empty({batch_size, block}, DType::i32),
              Tensor::empty({batch_size, block}, DType::i32)};
  auto* ids = batch.ids.mutable_data<std::int32_t>();
  auto* targets = batch.targets.mutable_data<std::int32_t>();
  const auto pairs = static_cast<std::int64_t>(tokens.size()) - 1;
  for (std::int64_t b = 0; b < batch_size; ++b) {
    const WindowOrder::Window window = order.window(sample + b);
    for (std::int64_t t = 0; t < block; ++t) {
      const auto pair = static_cast<std::size_t>((window.begin + t) % pairs);
      ids[b * block + t] = tokens[pair];
      targets[b * block + t] = t < window.count ? tokens[pair + 1] : kIgnoredTarget;
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
