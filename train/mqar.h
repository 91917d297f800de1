// Multi-query associative recall (Zoology, arXiv 2312.04927): an example lists K keys, each with
// its value, and later repeats the keys; the label of a repeated key is its value.
//
//   position   0  1  2  3   4   5  ...
//   input     k1 v1 k2 v2  k2   0  ...      K = 2, T tokens, vocabulary V
//   label      .  .  .  .  v2   .  ...      one per pair, the others do not count
//
// Keys are K different ids of 1 .. V/2 - 1, values K different ids of V/2 .. V - 1. There are
// (T - 2K)/2 places for repeats, two positions each; pair j gets place g_j, drawn without
// replacement with probability ~ (g + 1)^(alpha - 1): near the pairs more often than far away.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/config_keys.h"
#include "train/data.h"
#include "train/evaluate.h"

namespace duet {

inline constexpr std::int64_t kMqarVocabulary = 8192;    // where vocab_size is 0
inline constexpr std::int64_t kMqarTestExamples = 3000;  // as in Zoology

struct MqarTask {
  std::int64_t vocab_size = kMqarVocabulary;  // V
  std::int64_t length = 64;                   // T
  std::int64_t pairs = 4;                     // K
  bool random_non_queries = false;            // what is no pair and no repeat: any id instead of 0
  std::int64_t examples = 0;                  // of the training set; 0: never the same twice

  bool operator==(const MqarTask&) const = default;
};

MqarTask mqar_task(const RunConfig& config);
// What a run of this task has where the user says nothing: it learns the recall within a minute or
// two. One head, learned positions, short examples and a constant rate are what that takes.
std::vector<Setting> mqar_defaults();
// Throws Error(usage) naming key and value unless V > T, 4K <= T and T is even.
void validate(const MqarTask& task);

enum class MqarPart : std::uint8_t { train, test };

struct MqarExample {
  std::vector<std::int32_t> inputs;  // [T]
  std::vector<std::int32_t> labels;  // [T]; kIgnoredTarget where none
};
// A pure function of its arguments: the same on every machine, in any order. The parts never share
// a random number.
MqarExample mqar_example(const MqarTask& task, std::uint64_t seed, MqarPart part,
                         std::int64_t index);

// Examples `sample`, sample + 1, ... of the training order, as one batch whose targets are the
// labels alone. A training set of fixed size is shuffled anew every epoch.
Batch mqar_training_batch(const MqarTask& task, WindowOrder& order, std::uint64_t seed,
                          std::int64_t sample, std::int64_t batch_size);
WindowOrder mqar_order(const MqarTask& task, std::uint64_t seed);

// Loss and accuracy on labelled positions of the test examples: options.batches x batch_size of
// them, or all for 0. options.stride does not apply.
EvalResult evaluate_mqar(const Transformer& model, const MqarTask& task, std::uint64_t seed,
                         const EvalOptions& options);

// The inputs of the first test examples. [count, T]
Tensor mqar_test_ids(const MqarTask& task, std::uint64_t seed, std::int64_t count);

// Stands where a text has its tokenizer: vocabulary and tokenizer.json, no text.
std::unique_ptr<Tokenizer> make_mqar_tokenizer(const MqarTask& task);
// From a tokenizer.json whose model.type is "mqar". Throws Error(file).
std::unique_ptr<Tokenizer> parse_mqar_tokenizer(std::string_view json, const std::string& path);

}  // namespace duet
