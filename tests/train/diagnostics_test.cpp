// Diagnostics against numpy (tools/make_golden_diagnostics.py) and against maps made naively from
// what a forward captured.
#include "train/diagnostics.h"

#include <numeric>

#include "models/enum_names.h"
#include "runtime/cpu/parallel.h"
#include "runtime/safetensors.h"
#include "tests/models/model_helpers.h"
#include "tests/train/train_support.h"
#include "tests/train/vector_tokens.h"
#include "train/trainer.h"

namespace duet::test {
namespace {

SafetensorsFile golden() {
  return SafetensorsFile::open(std::string(DUET_SOURCE_DIR) +
                               "/tests/golden/diagnostics.safetensors");
}

void expect_near(double got, double expected, double tolerance, const std::string& what) {
  EXPECT_NEAR(got, expected, tolerance * std::max(1.0, std::abs(expected))) << what;
}

TEST(Diagnostics, SpectraMatchNumpy) {
  const SafetensorsFile file = golden();
  for (const char* name : {"soft", "sharp", "uniform", "sink", "identity", "difference"}) {
    const Tensor map = file.load(concat(name, ".map"));
    const std::vector<double> expected = values(file.load(concat(name, ".spectrum")));
    const Spectrum s = spectrum_of(map.data<double>(), map.size(0));
    expect_near(s.effective_rank, expected[0], 1e-11, concat(name, " rank"));
    expect_near(s.gap, expected[1], 1e-12, concat(name, " gap"));
    expect_near(s.gap_ratio, expected[2], 1e-12, concat(name, " ratio"));
  }
  // By hand: a map of rank one, and the identity.
  const Tensor sink = file.load("sink.map"), identity = file.load("identity.map");
  EXPECT_NEAR(spectrum_of(sink.data<double>(), 12).effective_rank, 1, 1e-12);
  EXPECT_NEAR(spectrum_of(sink.data<double>(), 12).gap, std::sqrt(12.0), 1e-12);
  EXPECT_NEAR(spectrum_of(identity.data<double>(), 12).effective_rank, 12, 1e-11);
}

TEST(Diagnostics, RowsMatchNumpy) {
  const SafetensorsFile file = golden();
  for (const char* name : {"soft", "sharp", "uniform", "sink", "identity"}) {
    const Tensor map = file.load(concat(name, ".map"));
    const std::vector<double> expected = values(file.load(concat(name, ".rows")));
    const RowMeans r = rows_of(map.data<double>(), map.size(0));
    expect_near(r.entropy, expected[0], 1e-13, concat(name, " entropy"));
    expect_near(r.entropy_norm, expected[1], 1e-13, concat(name, " normalised"));
    expect_near(r.sink, expected[2], 1e-13, concat(name, " sink"));
  }
  const Tensor uniform = file.load("uniform.map");
  EXPECT_NEAR(rows_of(uniform.data<double>(), 16).entropy_norm, 1, 1e-13);
}

TEST(Diagnostics, StreamsMatchNumpy) {
  const SafetensorsFile file = golden();
  for (const char* name : {"random", "collapsed", "shifted"}) {
    const Tensor x = file.load(concat(name, ".x"));
    const std::vector<double> expected = values(file.load(concat(name, ".spread")));
    const Spread s = spread_of(x.data<double>(), x.size(0), x.size(1));
    expect_near(s.collapse, expected[0], 1e-13, name);
    expect_near(s.cosine, expected[1], 1e-12, name);
  }
}

TEST(Diagnostics, SmallestSizes) {
  const std::vector<double> one = {1}, zeros(9, 0.0), bad = {1, NAN, 0, 1};
  EXPECT_EQ(spectrum_of(one.data(), 1).effective_rank, 1);
  EXPECT_EQ(spectrum_of(one.data(), 1).gap_ratio, 0);
  EXPECT_EQ(rows_of(one.data(), 1).entropy_norm, 0);
  EXPECT_EQ(spread_of(one.data(), 1, 1).cosine, 1);
  EXPECT_EQ(spectrum_of(zeros.data(), 3).effective_rank, 0);
  EXPECT_EQ(spread_of(zeros.data(), 3, 3).collapse, 0);
  EXPECT_TRUE(std::isnan(spectrum_of(bad.data(), 2).effective_rank));
}

// Softmax scores of one head, from what the layer captured.
std::vector<double> naive_map(const AttentionCapture& c, std::int64_t query, std::int64_t key) {
  const std::int64_t t = c.q.size(1), d = c.q.size(3);
  const auto at = [&](const Tensor& x, std::int64_t i, std::int64_t h, std::int64_t e) {
    return x.slice_view(1, i, i + 1).slice_view(2, h, h + 1).slice_view(3, e, e + 1).item();
  };
  std::vector<double> map(static_cast<std::size_t>(t * t), 0.0);
  for (std::int64_t i = 0; i < t; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      double score = 0;
      for (std::int64_t e = 0; e < d; ++e) score += at(c.q, i, query, e) * at(c.k, j, key, e);
      sum += map[static_cast<std::size_t>(i * t + j)] = std::exp(score / std::sqrt(double(d)));
    }
    for (std::int64_t j = 0; j <= i; ++j) map[static_cast<std::size_t>(i * t + j)] /= sum;
  }
  return map;
}

TEST(Diagnostics, AModelsHeadsAreMeasuredAsItScoresThem) {
  for (const auto& [scoring, word] : kEnumNames<Scoring>) {
    SCOPED_TRACE(word);
    ModelConfig c = micro(Family::llama);
    c.n_kv_head = 2;
    c.scoring = scoring;
    Transformer model(c);
    model.initialize(1);
    perturb(model, 0.3);
    const Tensor ids = make_ids(1, 8, 13);
    const Diagnostics d = diagnose(model, ids);
    const ForwardCapture captured = model.capture(ids);
    ASSERT_EQ(captured.attention.size(), 2U);
    const std::size_t heads = scoring == Scoring::diff ? 2 : 4;
    for (std::size_t layer = 0; layer < 2; ++layer) {
      ASSERT_EQ(d.effective_rank.at(layer).size(), heads);
      for (std::size_t h = 0; h < heads; ++h) {
        const auto n = static_cast<std::int64_t>(h);
        const AttentionCapture& a = captured.attention[layer];
        std::vector<double> map, second;
        double l = 0;
        const std::vector<double> lambda = a.lambda.defined() ? values(a.lambda) : map;
        if (scoring == Scoring::softmax) {
          map = naive_map(a, n, n / 2);
        } else if (scoring == Scoring::diff) {  // queries 0..3, keys 0 and 1: pairs (0, 2), (1, 3)
          map = naive_map(a, n, 0);
          second = naive_map(a, n + 2, 1);
          l = lambda.at(0);
        } else {  // queries 0..7, four to a key
          map = naive_map(a, 2 * n, n / 2);
          second = naive_map(a, 2 * n + 1, n / 2);
          for (std::size_t i = 0; i < 8; ++i) l += lambda.at(i * 4 + h) / 8;
        }
        const RowMeans rows = rows_of(map.data(), 8);
        EXPECT_NEAR(d.entropy[layer][h], rows.entropy, 1e-6);
        EXPECT_NEAR(d.entropy_norm[layer][h], rows.entropy_norm, 1e-6);
        EXPECT_NEAR(d.sink[layer][h], rows.sink, 1e-6);
        for (std::size_t i = 0; i < second.size(); ++i) {
          map[i] -= (scoring == Scoring::diff ? l : lambda.at(i / 8 * 4 + h)) * second[i];
        }
        const Spectrum s = spectrum_of(map.data(), 8);
        EXPECT_NEAR(d.effective_rank[layer][h], s.effective_rank, 1e-5);
        EXPECT_NEAR(d.gap[layer][h], s.gap, 1e-6);
        if (second.empty()) continue;
        EXPECT_NEAR(d.entropy_2.at(layer)[h], rows_of(second.data(), 8).entropy, 1e-6);
        EXPECT_NEAR(d.lambda.at(layer)[scoring == Scoring::diff ? 0 : h], l, 1e-6);
      }
      const Tensor& x = captured.residual[layer];
      EXPECT_NEAR(d.collapse[layer], spread_of(values(x).data(), 8, 16).collapse, 1e-12);
    }
    EXPECT_EQ(diff_lambdas(model, ids), d.lambda);
    EXPECT_EQ(d.entropy_2.empty(), scoring == Scoring::softmax);
    EXPECT_EQ(d.tables().size(), scoring == Scoring::softmax ? 6U : 9U);
  }
}

// The forward that is captured is the one that makes the logits, and costs nothing when it is not.
TEST(Diagnostics, CapturingChangesNothing) {
  Transformer model(micro(Family::gpt2));
  model.initialize(1);
  const Tensor ids = make_ids(2, 8, 13);
  const NoGradGuard no_grad;
  const std::vector<double> before = values(model.logits(ids));
  const std::size_t saved = saved_bytes();
  const ForwardCapture captured = model.capture(ids);
  EXPECT_EQ(saved_bytes(), saved);
  EXPECT_EQ(values(model.logits(ids)), before);
  EXPECT_EQ(captured.residual.size(), 2U);
  EXPECT_EQ(captured.residual[0].shape(), (Shape{2, 8, 16}));
}

TEST(Diagnostics, AMeanOverSequencesAndTheSameBitsOnAnyThreads) {
  ModelConfig c = micro(Family::llama);
  c.scoring = Scoring::diff_v2;
  Transformer model(c);
  model.initialize(1);
  perturb(model, 0.3);
  const Tensor ids = make_ids(3, 8, 13);
  const Diagnostics all = diagnose(model, ids);
  double mean = 0;
  for (std::int64_t s = 0; s < 3; ++s) {
    mean += diagnose(model, ids.slice_view(0, s, s + 1)).effective_rank[1][2] / 3;
  }
  EXPECT_NEAR(all.effective_rank[1][2], mean, 1e-12);
  const int threads = num_threads();
  for (const int n : {1, 2, 3}) {
    set_num_threads(n);
    EXPECT_EQ(diagnose(model, ids).effective_rank, all.effective_rank) << n;
  }
  set_num_threads(threads);
}

// Every evaluation reports them, and training goes its way as without.
TEST(Diagnostics, ATrainingRunReportsThem) {
  const TempDirectory dir;
  RunConfig config = tiny_run(dir);
  config.model.scoring = Scoring::diff_v2;
  std::vector<std::vector<double>> losses;
  for (const std::int64_t sequences : {0, 2}) {
    config.diagnostics = sequences;
    config.out_dir = dir.file(concat("run", sequences));
    Recorder reporter;
    TrainContext context;
    context.diagnostics_share = 1e9;  // always
    context.reporter = &reporter;
    train(config, context);
    ASSERT_EQ(reporter.evals.size(), 4U);
    losses.emplace_back();
    for (const StepReport& step : reporter.steps) losses.back().push_back(step.loss);
    for (const EvalReport& e : reporter.evals) {
      EXPECT_EQ(e.diagnostics.has_value(), sequences > 0);
      ASSERT_EQ(e.diff_lambda.size(), 1U);
      ASSERT_EQ(e.diff_lambda[0].size(), 2U);  // per head
      EXPECT_NEAR(e.diff_lambda[0][1], 0.5, 0.2);
      if (sequences == 0) continue;
      EXPECT_GE(e.diagnostics->effective_rank.at(0).at(1), 1);
      EXPECT_GT(e.diagnostics->collapse.at(0), 0);
    }
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(Diagnostics, SequencesAreSpreadOverTheText) {
  std::vector<std::int32_t> tokens(100);
  std::iota(tokens.begin(), tokens.end(), 0);
  const Tensor ids = sample_sequences(VectorTokens(tokens), 10, 4);
  EXPECT_EQ(ids.shape(), (Shape{4, 10}));
  EXPECT_EQ(ids.data<std::int32_t>()[0], 0);
  EXPECT_EQ(ids.data<std::int32_t>()[39], 99);
  tokens.resize(5);
  const VectorTokens part(tokens);
  EXPECT_EQ(sample_sequences(part, 10, 4).shape(), (Shape{1, 5}));
  EXPECT_EQ(sample_sequences(part, 4, 4).shape(), (Shape{2, 4}));
}

}  // namespace
}  // namespace duet::test
