// The main job: every combination of family, coupling, dropout, accumulation and recompute learns
// the bytes of WikiText-2, or of the project's own sources without DUET_TEST_DATA, and every
// parameter takes part.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <tuple>

#include "models/transformer.h"
#include "tests/train/project_text.h"
#include "tests/train/vector_tokens.h"
#include "train/data.h"
#include "train/schedule.h"
#include "train/trainer.h"

namespace duet::test {
namespace {

struct Accumulation {
  std::int64_t steps;
  RecomputeMode recompute;
};
// family, (coupling, its steps), dropout, (accumulation, recompute)
using Combination = std::tuple<Family, int, double, int>;
constexpr std::array<Accumulation, 4> kAccumulations{{{1, RecomputeMode::none},
                                                      {1, RecomputeMode::block},
                                                      {2, RecomputeMode::none},
                                                      {2, RecomputeMode::attn}}};

double unigram_entropy(const std::vector<std::int32_t>& tokens) {
  std::array<double, 256> count{};
  for (const std::int32_t t : tokens) ++count[static_cast<std::size_t>(t)];
  double entropy = 0;
  for (const double c : count) {
    const double p = c / static_cast<double>(tokens.size());
    if (c > 0) entropy -= p * std::log(p);
  }
  return entropy;
}

double max_abs(const Tensor& t) {
  double m = 0;
  const float* p = t.data<float>();
  for (std::int64_t i = 0; i < t.numel(); ++i) m = std::max(m, std::abs(static_cast<double>(p[i])));
  return m;
}

class Learning : public testing::TestWithParam<Combination> {};

TEST_P(Learning, FallsBelowTheUnigramEntropy) {
  const auto [family, coupling_steps, dropout, accumulation] = GetParam();

  RunConfig run;
  run.model = preset("tiny", family);
  run.model.coupling = coupling_steps > 0 ? CouplingKind::euler : CouplingKind::none;
  run.model.coupling_steps = std::max(coupling_steps, 1);
  run.model.dropout = dropout;
  const auto& [micro_batches, recompute] =
      kAccumulations.at(static_cast<std::size_t>(accumulation));
  run.model.recompute = recompute;
  const TempDirectory directory;
  run.data = test_text(directory, "wikitext2/valid.txt");
  run.batch_size = 16 / micro_batches;
  run.gradient_accumulation_steps = micro_batches;
  run.max_iters = 300;
  // The sources change with every commit, and at 3e-3 an unlucky draw of dropout masks keeps the
  // loss at the unigrams for 280 steps. At 1e-3 three draws of the combinations were done by step
  // 140.
  run.learning_rate = has_real_text() ? 3e-3 : 1e-3;
  run.warmup_iters = 20;

  const std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer();
  const Dataset data = load_dataset(run, *tokenizer);
  const double target = unigram_entropy(all_tokens(*data.train)) - 0.3;
  Transformer model(run.model);
  model.initialize(7);
  AdamW optimizer(named_tensors(model), {run.beta1, run.beta2, run.adam_eps, run.weight_decay});
  WindowOrder order(data.train->size(), run.model.block_size, 7);
  const Schedule schedule = schedule_of(run);

  StepHooks hooks;
  hooks.after_backward = [&](std::int64_t step, const std::vector<NamedTensor>& tensors) {
    if (step != 1) return;
    for (const NamedTensor& t : tensors) {
      ASSERT_TRUE(t.gradient().defined()) << t.name;
      EXPECT_GT(max_abs(t.gradient()), 0) << t.name << " has a zero gradient";
    }
  };
  // The mean of the last 20 losses, so that one lucky batch does not pass.
  std::vector<double> losses;
  double recent = 0;
  std::int64_t sample = 0;
  for (std::int64_t step = 0; step < run.max_iters; ++step) {
    std::vector<Batch> batches;
    for (std::int64_t i = 0; i < micro_batches; ++i, sample += run.batch_size) {
      batches.push_back(
          training_batch(*data.train, order, sample, run.batch_size, run.model.block_size));
    }
    losses.push_back(
        train_step(model, optimizer, run, step, learning_rate(schedule, step), batches, hooks)
            .loss);
    if (losses.size() < 20) continue;
    recent = 0;
    for (std::size_t i = losses.size() - 20; i < losses.size(); ++i) recent += losses[i] / 20;
    if (recent <= target) break;
  }
  EXPECT_LE(recent, target) << "after " << losses.size() << " steps";
  RecordProperty("steps", static_cast<int>(losses.size()));
}

std::string combination_name(const testing::TestParamInfo<Combination>& info) {
  const auto [family, coupling_steps, dropout, accumulation] = info.param;
  const auto& [micro_batches, recompute] =
      kAccumulations.at(static_cast<std::size_t>(accumulation));
  const std::string coupling =
      coupling_steps == 0 ? "none" : "euler" + std::to_string(coupling_steps);
  const std::string mode = recompute == RecomputeMode::none    ? "keep"
                           : recompute == RecomputeMode::block ? "recompute_block"
                                                               : "recompute_attn";
  return std::string(family == Family::llama ? "llama_" : "gpt2_") + coupling +
         (dropout > 0 ? "_dropout_" : "_") + std::to_string(micro_batches) + "x_" + mode;
}

INSTANTIATE_TEST_SUITE_P(Text, Learning,
                         testing::Combine(testing::Values(Family::llama, Family::gpt2),
                                          testing::Values(0, 1, 3), testing::Values(0.0, 0.1),
                                          testing::Values(0, 1, 2, 3)),
                         combination_name);

}  // namespace
}  // namespace duet::test
