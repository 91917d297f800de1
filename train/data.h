// Data: the training and validation parts of a text, and the order of the windows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/tensor.h"
#include "train/run_config.h"
#include "train/text_file.h"
#include "train/token_source.h"
#include "train/tokenizer.h"

namespace duet {

struct Dataset {
  std::unique_ptr<const TokenSource> train, val;
  FileIdentity data, val_data;  // val_data.path is empty when `data` was split
};

// Opens config.data, and val_data or the last 10 % of data. Throws Error(file) when the training
// part is shorter than one window (block_size + 1 tokens) or the validation part than two tokens,
// Error(usage) when no data is named.
Dataset load_dataset(const RunConfig& config, const Tokenizer& tokenizer);

inline constexpr std::int32_t kIgnoredTarget = -100;  // CrossEntropyOptions::ignore_index

struct Batch {
  Tensor ids;                // [B, T] i32
  Tensor targets;            // [B, T] i32; kIgnoredTarget where a window is not full
  std::int64_t counted = 0;  // targets that count
  // Where only few positions count: which, in the flattened [B * T], i32 [M]. Targets are [M] then.
  Tensor rows{};
};

// On `device`, in the memory scope of batches; itself where it is there already.
Batch to_device(const Batch& batch, Device device);

// The order of training windows: a pure function of (seed, sample number), so there is no state
// that a resume could lose. The text is a ring of `tokens - 1` pairs (token, next token); each
// epoch cuts it at its own offset into windows of `block` pairs and shuffles them: every pair is
// trained on exactly once an epoch. The last window of an epoch may be short.
class WindowOrder {
 public:
  // Throws Error(usage) for more windows than the order can name, 2^32.
  WindowOrder(std::int64_t tokens, std::int64_t block, std::uint64_t seed);

  struct Window {
    std::int64_t begin = 0;  // first pair, in [0, pairs)
    std::int64_t count = 0;  // pairs, 1..block; they wrap around the end of the text
  };
  std::int64_t windows_per_epoch() const { return windows_; }
  std::int64_t epoch(std::int64_t sample) const { return sample / windows_; }
  Window window(std::int64_t sample);
  // What an epoch's order takes.
  static std::uint64_t bytes(std::int64_t windows) {
    return static_cast<std::uint64_t>(windows) * sizeof(std::uint32_t);
  }

 private:
  std::int64_t pairs_, block_, windows_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;  // whose permutation is at hand
  std::int64_t offset_ = 0;
  std::vector<std::uint32_t> permutation_;
};

// The windows `samples`, samples + 1, ... of the order, as one batch.
Batch training_batch(const TokenSource& tokens, WindowOrder& order, std::int64_t sample,
                     std::int64_t batch_size, std::int64_t block);

}  // namespace duet
