// Differential attention, V1 and V2: whole modules against PyTorch (tools/make_golden_diff.py wrote
// tests/golden/diff_attention.safetensors from the published formulas), and what a model gains.
#include <limits>
#include <nlohmann/json.hpp>

#include "models/enum_names.h"
#include "models/flops.h"
#include "runtime/safetensors.h"
#include "tests/models/model_helpers.h"

namespace duet::test {
namespace {

ModelConfig config_of(const nlohmann::json& c) {
  ModelConfig m =
      family_defaults(enum_from_name<Family>(c.at("family").get<std::string>()).value());
  m.scoring = enum_from_name<Scoring>(c.at("scoring").get<std::string>()).value();
  m.coupling = c.at("coupling") == "euler" ? CouplingKind::euler : CouplingKind::none;
  m.coupling_steps = c.at("coupling_steps");
  m.coupling_hidden = c.at("coupling_hidden");
  m.n_embd = c.at("n_embd");
  m.n_head = c.at("n_head");
  m.n_kv_head = c.at("n_kv_head");
  m.n_layer = c.at("layer").get<std::int64_t>() + 1;
  validate(m);
  return m;
}

void expect_close(const Tensor& got, const Tensor& expected, double tolerance,
                  const std::string& what) {
  ASSERT_TRUE(got.defined()) << what;
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  EXPECT_GT(max_abs(expected), 1e-4) << what;
  const std::vector<double> a = values(got), b = values(expected);
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  EXPECT_LT(worst, tolerance * std::max(1.0, max_abs(expected))) << what;
}

void expect_golden_modules(DType dtype, double tolerance) {
  const SafetensorsFile file = SafetensorsFile::open(std::string(DUET_SOURCE_DIR) +
                                                     "/tests/golden/diff_attention.safetensors");
  const auto entries = nlohmann::json::parse(file.metadata().at("entries"));
  ASSERT_EQ(entries.size(), 6U);
  for (const auto& [name, settings] : entries.items()) {
    SCOPED_TRACE(name);
    const ModelConfig c = config_of(settings);
    const auto load = [&, entry = name](const std::string& key) {
      const Tensor stored = file.load(concat(entry, ".", key));
      Tensor t = Tensor::empty(stored.shape(), dtype);
      copy(t, stored);
      return t;
    };
    Attention module(c, c.n_layer - 1, {dtype, kCpu}, CouplingNetWeights{});
    for (NamedTensor& t : named_tensors(module)) copy(t.value, load("w." + t.name));
    Tensor x = load("x");
    set_requires_grad(x);
    const Tensor rotation = c.family == Family::llama
                                ? rope_table(x.size(1), c.head_dim(), 10'000, dtype, kCpu)
                                : Tensor();
    const Tensor out = module(x, rotation);
    expect_close(out, load("out"), tolerance, "out");
    backward(out, load("cot"));
    expect_close(grad(x), load("gx"), tolerance, "gradient of x");
    std::int64_t parameters = 0;
    double key_gradients = 0;  // their size: those of k_proj's weight are sums of them times x
    for (NamedTensor& t : named_tensors(module)) {
      if (t.name == "k_proj.weight") key_gradients = max_abs(t.gradient());
      ++parameters;
      if (t.name == "k_proj.bias" && c.coupling == CouplingKind::none) {
        // A sum of gradients that cancel, so that only their rounding is left. On these inputs it
        // is 1 (float64) to 1.8 (float32, AVX-512) units of the last place of their size.
        const double epsilon = dtype == DType::f64 ? std::numeric_limits<double>::epsilon()
                                                   : std::numeric_limits<float>::epsilon();
        EXPECT_LT(max_abs(t.gradient()), 8 * epsilon * key_gradients)
            << "softmax does not see a bias of the keys";
        continue;
      }
      expect_close(t.gradient(), load("g." + t.name), tolerance, t.name);
    }
    EXPECT_GE(parameters, 5);
  }
}

TEST(Scoring, ModulesMatchPyTorchInFloat64) { expect_golden_modules(DType::f64, 1e-12); }
TEST(Scoring, ModulesMatchPyTorchInFloat32) { expect_golden_modules(DType::f32, 1e-5); }

std::int64_t parameters(const ModelConfig& c) {
  Transformer model(c, DType::f32, kMeta);
  return count_parameters(model);
}

// The paper's design: the halved heads have twice the value width, so only lambda and norm add up.
TEST(Scoring, ParametersAreThoseOfSoftmaxAndWhatTheFormulaNames) {
  for (const Family family : {Family::llama, Family::gpt2}) {
    ModelConfig c = micro(family);
    c.n_kv_head = 2;
    const std::int64_t softmax = parameters(c), d = c.head_dim();
    c.scoring = Scoring::diff;
    EXPECT_EQ(parameters(c), softmax + c.n_layer * (4 * d + 2 * d));
    c.scoring = Scoring::diff_v2;
    const std::int64_t query_rows = c.n_head * d * (c.n_embd + (c.bias ? 1 : 0));
    EXPECT_EQ(parameters(c), softmax + c.n_layer * (query_rows + c.n_embd * c.n_head));
  }
}

TEST(Scoring, NamesShapesAndDecay) {
  ModelConfig c = micro(Family::gpt2);
  c.scoring = Scoring::diff;
  Transformer v1(c, DType::f32, kMeta);
  const auto shapes = weights(v1);
  for (const char* name : {"lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"}) {
    EXPECT_EQ(shapes.at(concat("blocks.1.attn.diff.", name)).shape(), Shape{4});
  }
  EXPECT_EQ(shapes.at("blocks.1.attn.diff.norm.weight").shape(), Shape{8});
  for (const NamedTensor& t : named_tensors(v1)) {
    const bool added = t.name.find(".diff.") != std::string::npos;
    EXPECT_FALSE(added && t.owner->decay) << t.name;
  }
  c.scoring = Scoring::diff_v2;
  Transformer v2(c, DType::f32, kMeta);
  EXPECT_EQ(weights(v2).at("blocks.0.attn.diff.lambda_proj.weight").shape(), (Shape{4, 16}));
  EXPECT_EQ(weights(v2).at("blocks.0.attn.q_proj.weight").shape(), (Shape{32, 16}));
  EXPECT_FALSE(weights(v2).contains("blocks.0.attn.diff.lambda_proj.bias"));
}

TEST(Scoring, InitialisationFollowsThePaper) {
  EXPECT_DOUBLE_EQ(diff_lambda_init(0), 0.2);
  EXPECT_DOUBLE_EQ(diff_lambda_init(2), 0.8 - 0.6 * std::exp(-0.6));
  ModelConfig c = preset("tiny", Family::llama);
  c.n_embd = 1024;
  c.scoring = Scoring::diff;
  Transformer model(c);
  model.initialize(3);
  const auto w = weights(model);
  std::vector<std::vector<double>> seen;
  for (const char* name : {"lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"}) {
    const std::vector<double> v = values(w.at(concat("blocks.0.attn.diff.", name)));
    double squares = 0;
    for (const double a : v) squares += a * a;
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(v.size())), 0.1, 0.01) << name;
    for (const auto& other : seen) EXPECT_NE(v, other);
    seen.push_back(v);
  }
  EXPECT_EQ(values(w.at("blocks.0.attn.diff.norm.weight")), std::vector<double>(1024, 1.0));
}

TEST(Scoring, EachGivesItsOwnLogitsAndEveryParameterAGradient) {
  for (const Family family : {Family::llama, Family::gpt2}) {
    for (const CouplingKind coupling : {CouplingKind::none, CouplingKind::euler}) {
      std::vector<Tensor> logits;
      for (const auto& [scoring, word] : kEnumNames<Scoring>) {
        ModelConfig c = micro(family, coupling);
        c.scoring = scoring;
        Transformer model(c);
        model.initialize(1);
        const Tensor ids = make_ids(3, 8, 13);
        {
          const NoGradGuard no_grad;
          logits.push_back(model.logits(ids));
        }
        for (std::size_t i = 0; i + 1 < logits.size(); ++i) {
          EXPECT_GT(max_difference(logits[i], logits.back()), 1e-4) << word;
        }
        backward(model.loss(ids, make_ids(3, 8, 13, 2)));
        for (const auto& [name, gradient] : gradients(model)) {
          ASSERT_TRUE(gradient.defined()) << name;
          if (name.ends_with("k_proj.bias") && coupling == CouplingKind::none) continue;
          EXPECT_GT(max_abs(gradient), 0) << name << ' ' << word;
        }
      }
    }
  }
}

TEST(Scoring, FlopsAreThoseOfTheMatrixProducts) {
  ModelConfig c = preset("60m", Family::llama);
  c.coupling = CouplingKind::none;
  const double softmax = flops_per_token(c, 512), maps = 512 * 256.5;  // width x keys seen
  c.scoring = Scoring::diff;  // two maps of half the heads, each times values of twice the width
  EXPECT_DOUBLE_EQ(flops_per_token(c, 512) - softmax, 6.0 * 8 * maps);
  c.scoring = Scoring::diff_v2;  // twice the maps, twice the query rows, and lambda
  EXPECT_DOUBLE_EQ(flops_per_token(c, 512) - softmax, 6.0 * 8 * (2 * maps + 512 * 512 + 512 * 8));
}

}  // namespace
}  // namespace duet::test
