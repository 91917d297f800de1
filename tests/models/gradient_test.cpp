// Gradients of the whole model: against central differences in f64, and bit for bit among the
// recompute modes.
#include "autograd/saved_tensor.h"
#include "models/enum_names.h"
#include "tests/models/model_helpers.h"

namespace duet::test {
namespace {

// d(loss)/d(direction) of every tensor, one random direction each, against central differences.
void expect_gradients_match(const ModelConfig& config, double sabotage = 1) {
  Transformer model(config, DType::f64);
  model.initialize(1);
  perturb(model, 0.3);
  const std::int64_t vocab = config.valid_vocab == 0 ? config.vocab_size : config.valid_vocab;
  const Tensor ids = make_ids(2, 5, vocab), targets = make_ids(2, 5, vocab, 2);
  const ForwardContext context{9, 1, 0, true};
  backward(model.loss(ids, targets, {}, context));
  const auto loss = [&] {
    const NoGradGuard no_grad;
    return model.loss(ids, targets, {}, context).item();
  };
  int wrong = 0;
  std::uint32_t index = 0;
  for (NamedTensor& t : named_tensors(model)) {
    Tensor direction = Tensor::empty(t.value.shape(), DType::f64);
    fill_normal(direction, {3, 0, index++, kUseTest, 0}, 0, 1);
    const Tensor start = clone(t.value);
    const double h = 1e-5;
    const auto at = [&](double step) {
      copy(t.value, start);
      accumulate(t.value, scale(direction, step));
      return loss();
    };
    const double numeric = (at(h) - at(-h)) / (2 * h);
    copy(t.value, start);
    double analytic = 0;
    const std::vector<double> g = values(t.gradient()), d = values(direction);
    for (std::size_t i = 0; i < g.size(); ++i) analytic += g[i] * d[i];
    analytic *= sabotage;
    const bool close = std::abs(analytic - numeric) <= 1e-8 + 1e-6 * std::abs(numeric);
    if (sabotage == 1) {
      EXPECT_TRUE(close) << t.name << ": analytic " << analytic << ", numeric " << numeric;
    }
    wrong += close ? 0 : 1;
  }
  if (sabotage != 1) {
    EXPECT_GT(wrong, 0);
  }
}

TEST(Gradient, MatchesCentralDifferences) {
  for (const Family family : {Family::llama, Family::gpt2}) {
    for (const std::int64_t steps : {0, 1, 3}) {
      ModelConfig c = micro(family, steps == 0 ? CouplingKind::none : CouplingKind::euler);
      c.coupling_steps = std::max<std::int64_t>(steps, 1);
      SCOPED_TRACE(std::string(enum_name(family)) + " steps " + std::to_string(steps));
      expect_gradients_match(c);
    }
  }
}

TEST(Gradient, MatchesForEveryCoupling) {
  for (const CouplingKind kind : kCouplings) {
    for (const bool run_back : {false, true}) {
      ModelConfig c = micro(Family::llama, kind);
      c.n_kv_head = 2;
      c.coupling_steps = 2;
      c.coupling_run_back = run_back;
      if (run_back &&
          (kind == CouplingKind::euler || kind == CouplingKind::uncoupled ||
           kind == CouplingKind::uncoupled_k || kind == CouplingKind::hamiltonian_potential)) {
        continue;
      }
      SCOPED_TRACE(std::string(enum_name(kind)) + (run_back ? " run back" : ""));
      expect_gradients_match(c);
      c.n_kv_head = 4;
      c.coupling_rope = CouplingRope::after;
      c.coupling_sharing = run_back ? CouplingSharing::layer : CouplingSharing::model;
      c.coupling_dt_mode = CouplingDtMode::softplus;
      c.coupling_layers = {1};
      expect_gradients_match(c);
    }
  }
}

TEST(Gradient, MatchesWithEveryOption) {
  ModelConfig c = micro(Family::llama);
  c.n_kv_head = 2;
  c.coupling_rope = CouplingRope::after;
  c.coupling_dt_mode = CouplingDtMode::softplus;
  c.coupling_sharing = CouplingSharing::model;
  c.dropout = 0.2;
  c.bias = true;
  c.valid_vocab = 11;
  c.recompute = RecomputeMode::block;
  expect_gradients_match(c);
  c = micro(Family::gpt2);
  c.n_kv_head = 1;
  c.coupling_dt_mode = CouplingDtMode::fixed;
  c.coupling_sharing = CouplingSharing::layer;
  c.coupling_layers = {1};
  c.activation = Activation::gelu;
  c.bias = false;
  c.recompute = RecomputeMode::attn;
  expect_gradients_match(c);
}

TEST(Gradient, MatchesInEveryScoring) {
  for (const Family family : {Family::llama, Family::gpt2}) {
    for (const Scoring scoring : {Scoring::diff, Scoring::diff_v2}) {
      for (const std::int64_t kv_heads : {4, 2}) {
        ModelConfig c = micro(family);
        c.scoring = scoring;
        c.n_kv_head = kv_heads;
        c.coupling_steps = kv_heads;
        c.dropout = 0.2;
        SCOPED_TRACE(std::string(enum_name(family)) + ' ' + std::string(enum_name(scoring)));
        expect_gradients_match(c);
      }
    }
  }
}

TEST(Gradient, TheCheckCatchesAWrongOne) { expect_gradients_match(micro(Family::llama), 1.001); }

struct Result {
  double loss;
  std::map<std::string, std::vector<double>> gradients;
  std::size_t saved;
};

Result run(ModelConfig config, RecomputeMode mode, bool move_model = false) {
  config.recompute = mode;
  Transformer built(config);
  built.initialize(1);
  perturb(built, 0.1);
  const std::size_t before = saved_bytes();
  const Tensor ids = make_ids(2, 8, 13), targets = make_ids(2, 8, 13, 2);
  const Tensor loss = built.loss(ids, targets, {}, {4, 2, 1, true});
  Result out{loss.item(), {}, saved_bytes() - before};
  Transformer model = std::move(built);
  if (!move_model) built = std::move(model);
  Transformer& place = move_model ? model : built;
  backward(loss);
  // A second micro-batch, so that accumulation into existing gradients is covered.
  backward(place.loss(targets, ids, {}, {4, 2, 2, true}));
  for (const auto& [name, g] : gradients(place)) out.gradients[name] = values(g);
  EXPECT_EQ(saved_bytes(), before);
  return out;
}

TEST(Gradient, RecomputeModesAgreeBitForBitAndKeepLess) {
  for (const Family family : {Family::llama, Family::gpt2}) {
    for (const Scoring scoring : {Scoring::softmax, Scoring::diff, Scoring::diff_v2}) {
      ModelConfig c = micro(family);
      c.dropout = 0.2;
      c.scoring = scoring;
      c.coupling_sharing =
          scoring == Scoring::softmax ? CouplingSharing::head : CouplingSharing::model;
      c.coupling_steps = 2;
      const Result none = run(c, RecomputeMode::none);
      std::map<RecomputeMode, std::size_t> saved = {{RecomputeMode::none, none.saved}};
      for (const RecomputeMode mode :
           {RecomputeMode::mlp, RecomputeMode::attn, RecomputeMode::block}) {
        const Result again = run(c, mode);
        EXPECT_EQ(again.loss, none.loss);
        for (const auto& [name, g] : none.gradients) {
          EXPECT_EQ(again.gradients.at(name), g)
              << name << " with recompute " << enum_name(mode) << ", " << enum_name(family);
        }
        saved[mode] = again.saved;
      }
      EXPECT_LT(saved[RecomputeMode::mlp], saved[RecomputeMode::none]);
      EXPECT_LT(saved[RecomputeMode::attn], saved[RecomputeMode::none]);
      EXPECT_LT(saved[RecomputeMode::block], saved[RecomputeMode::attn]);
      EXPECT_LT(saved[RecomputeMode::block], saved[RecomputeMode::mlp]);
    }
  }
}

TEST(Gradient, RecomputeAgreesBitForBitForEveryCoupling) {
  for (const CouplingKind kind : kCouplings) {
    ModelConfig c = micro(Family::llama, kind);
    c.n_kv_head = 2;
    c.coupling_steps = 2;
    const Result none = run(c, RecomputeMode::none), block = run(c, RecomputeMode::block);
    EXPECT_EQ(none.gradients, block.gradients) << enum_name(kind);
    EXPECT_EQ(none.loss, block.loss);
  }
}

TEST(Gradient, AModelMayMoveBetweenForwardAndBackward) {
  const ModelConfig c = micro(Family::llama);
  const Result stayed = run(c, RecomputeMode::block, false);
  const Result moved = run(c, RecomputeMode::block, true);
  EXPECT_EQ(moved.gradients, stayed.gradients);
}

TEST(Gradient, TwoRunsAreBitEqual) {
  const ModelConfig c = micro(Family::gpt2);
  EXPECT_EQ(run(c, RecomputeMode::none).gradients, run(c, RecomputeMode::none).gradients);
}

}  // namespace
}  // namespace duet::test
