#include "train/mqar.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "models/transformer.h"
#include "runtime/memory_ops.h"
#include "runtime/nan_sign.h"
#include "runtime/random.h"
#include "runtime/stop.h"

namespace duet {
namespace {

constexpr double kAlpha = 0.01;

// Numbers of one example, one after another.
class Draws {
 public:
  Draws(std::uint64_t seed, MqarPart part, std::int64_t index)
      : key_{seed, static_cast<std::uint32_t>(index),
             static_cast<std::uint32_t>(static_cast<std::uint64_t>(index) >> 32), kUseDataOrder,
             // 0 is the order of windows.
             static_cast<std::uint16_t>(part == MqarPart::train ? 1 : 2)} {}

  std::uint32_t word() { return random_u32(key_, next_++); }
  // In [0, bound); 64 bits, so that the remainder's bias is below 2^-32.
  std::int64_t below(std::int64_t bound) {
    const std::uint64_t high = word();
    const std::uint64_t wide = high << 32 | word();
    return static_cast<std::int64_t>(wide % static_cast<std::uint64_t>(bound));
  }
  // In (0, 1).
  double unit() {
    const std::uint64_t high = word() >> 6;
    const std::uint64_t wide = high << 26 | word() >> 6;
    return (static_cast<double>(wide) + 0.5) * 0x1p-52;
  }

 private:
  RandomKey key_;
  std::uint64_t next_ = 0;
};

// `count` different numbers of [low, high), each choice as likely. At most half of them are asked
// for, so that drawing again when one is taken ends soon.
std::vector<std::int32_t> distinct(Draws& draws, std::int64_t count, std::int64_t low,
                                   std::int64_t high) {
  std::vector<std::int32_t> out;
  std::unordered_set<std::int64_t> taken;
  while (static_cast<std::int64_t>(out.size()) < count) {
    const std::int64_t v = low + draws.below(high - low);
    if (taken.insert(v).second) out.push_back(static_cast<std::int32_t>(v));
  }
  return out;
}

// `count` different places, one drawn after the other with probability ~ weight among those left.
// As a race: place i arrives at an exponential time of rate weight_i, the first ones win in the
// order of arrival, which has just that distribution.
std::vector<std::int64_t> places(Draws& draws, std::int64_t count, std::int64_t space) {
  std::vector<double> arrival(static_cast<std::size_t>(space));
  for (std::size_t i = 0; i < arrival.size(); ++i) {
    const double weight = std::pow(static_cast<double>(i + 1), kAlpha - 1);
    arrival[i] = -std::log(draws.unit()) / weight;
  }
  std::vector<std::int64_t> order(arrival.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(
      order.begin(), order.begin() + count, order.end(), [&](std::int64_t a, std::int64_t b) {
        return arrival[static_cast<std::size_t>(a)] < arrival[static_cast<std::size_t>(b)];
      });
  order.resize(static_cast<std::size_t>(count));
  return order;
}

// [B, T] inputs; rows and targets [B * K]: where the labels are, and which.
Batch batch_of(const MqarTask& task, const std::vector<MqarExample>& examples) {
  const auto b_size = static_cast<std::int64_t>(examples.size());
  const std::int64_t labelled = b_size * task.pairs;
  const MemoryScope scope("batch");
  Batch batch{Tensor::empty({b_size, task.length}, DType::i32),
              Tensor::empty({labelled}, DType::i32), labelled,
              Tensor::empty({labelled}, DType::i32)};
  auto* ids = batch.ids.mutable_data<std::int32_t>();
  auto* targets = batch.targets.mutable_data<std::int32_t>();
  auto* rows = batch.rows.mutable_data<std::int32_t>();
  std::int32_t row = 0;
  for (const MqarExample& example : examples) {
    for (std::size_t t = 0; t < example.inputs.size(); ++t, ++row) {
      *ids++ = example.inputs[t];
      if (example.labels[t] == kIgnoredTarget) continue;
      *targets++ = example.labels[t];
      *rows++ = row;
    }
  }
  return batch;
}

// Sums over the rows of logits [M, V]: losses in nats, and targets that are the likeliest id.
struct Score {
  double loss = 0;
  std::int64_t right = 0;
};
Score score(const Tensor& logits, const Tensor& targets) {
  Score out;
  const auto vocab = static_cast<std::size_t>(logits.size(1));
  const auto* target = targets.data<std::int32_t>();
  visit_floating(logits.dtype(), "mqar", [&]<class T>(TypeTag<T>) {
    const T* row = logits.data<T>();
    for (std::int64_t i = 0; i < logits.size(0); ++i, row += vocab) {
      const auto label = static_cast<std::size_t>(target[i]);
      const T* best = std::max_element(row, row + vocab);
      double sum = 0;
      for (std::size_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(row[v] - *best));
      out.loss += std::log(sum) - static_cast<double>(row[label] - *best);
      out.right += best == row + label ? 1 : 0;
    }
  });
  return out;
}

}  // namespace

MqarExample mqar_example(const MqarTask& task, std::uint64_t seed, MqarPart part,
                         std::int64_t index) {
  Draws draws(seed, part, index);
  const std::int64_t half = task.vocab_size / 2;
  const auto keys = distinct(draws, task.pairs, 1, half);
  const auto values = distinct(draws, task.pairs, half, task.vocab_size);
  const auto gaps = places(draws, task.pairs, (task.length - 2 * task.pairs) / 2);
  const auto length = static_cast<std::size_t>(task.length);
  MqarExample out{std::vector<std::int32_t>(length, 0),
                  std::vector<std::int32_t>(length, kIgnoredTarget)};
  for (std::size_t j = 0; j < keys.size(); ++j) {
    out.inputs[2 * j] = keys[j];
    out.inputs[2 * j + 1] = values[j];
    const auto at = static_cast<std::size_t>(2 * task.pairs + 2 * gaps[j]);
    out.inputs[at] = keys[j];
    out.labels[at] = values[j];
  }
  if (task.random_non_queries) {
    for (std::int32_t& id : out.inputs) {
      if (id == 0) id = static_cast<std::int32_t>(draws.below(task.vocab_size));
    }
  }
  return out;
}

// An epoch of a set of N is a ring of N pairs cut into windows of one: all N, each once.
WindowOrder mqar_order(const MqarTask& task, std::uint64_t seed) {
  return WindowOrder(std::max<std::int64_t>(task.examples, 1) + 1, 1, seed);
}

Batch mqar_training_batch(const MqarTask& task, WindowOrder& order, std::uint64_t seed,
                          std::int64_t sample, std::int64_t batch_size) {
  std::vector<MqarExample> examples;
  for (std::int64_t i = sample; i < sample + batch_size; ++i) {
    const std::int64_t index = task.examples == 0 ? i : order.window(i).begin;
    examples.push_back(mqar_example(task, seed, MqarPart::train, index));
  }
  return batch_of(task, examples);
}

Tensor mqar_test_ids(const MqarTask& task, std::uint64_t seed, std::int64_t count) {
  std::vector<MqarExample> examples;
  for (std::int64_t i = 0; i < count; ++i) {
    examples.push_back(mqar_example(task, seed, MqarPart::test, i));
  }
  return batch_of(task, examples).ids;
}

EvalResult evaluate_mqar(const Transformer& model, const MqarTask& task, std::uint64_t seed,
                         const EvalOptions& options) {
  const std::int64_t wanted =
      options.batches == 0 ? kMqarTestExamples
                           : std::min(kMqarTestExamples, options.batches * options.batch_size);
  const NoGradGuard no_grad;
  EvalResult result;
  Score total;
  for (std::int64_t first = 0; first < wanted; first += options.batch_size) {
    check_stop();
    std::vector<MqarExample> examples;
    for (std::int64_t i = first; i < std::min(wanted, first + options.batch_size); ++i) {
      examples.push_back(mqar_example(task, seed, MqarPart::test, i));
    }
    const Batch batch = batch_of(task, examples);
    const Batch there = to_device(batch, model.device());
    const Score part =
        score(to_device(model.logits_at(there.ids, there.rows), kCpu), batch.targets);
    total.loss += part.loss;
    total.right += part.right;
    result.tokens += batch.counted;
  }
  result.windows = wanted;
  result.window = task.length;
  const auto n = static_cast<double>(result.tokens);
  result.loss = without_nan_sign(total.loss / n);
  result.ppl = std::exp(result.loss);
  result.accuracy = static_cast<double>(total.right) / n;
  return result;
}

}  // namespace duet
