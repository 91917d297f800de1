// The whole model: names, initialisation, tied head, edge shapes, dropout, memory scopes, refusals.
#include "models/transformer.h"

#include <set>

#include "models/enum_names.h"
#include "tests/models/model_helpers.h"

namespace duet::test {
namespace {

std::vector<std::string> names(const ModelConfig& config) {
  Transformer model(config, DType::f32, kMeta);
  std::vector<std::string> out;
  for (const NamedTensor& t : named_tensors(model)) out.push_back(t.name);
  return out;
}

TEST(Transformer, NamesOfLlama) {
  ModelConfig c = micro(Family::llama);
  c.n_layer = 1;
  const std::string b = "blocks.0.";
  EXPECT_EQ(names(c),
            (std::vector<std::string>{
                "embedding.weight", b + "attn_norm.weight", b + "attn.q_proj.weight",
                b + "attn.k_proj.weight", b + "attn.v_proj.weight", b + "attn.o_proj.weight",
                b + "attn.coupling.w1", b + "attn.coupling.w2", b + "attn.coupling.dt",
                b + "mlp_norm.weight", b + "mlp.gate_proj.weight", b + "mlp.up_proj.weight",
                b + "mlp.down_proj.weight", "final_norm.weight"}));
  c.coupling_sharing = CouplingSharing::model;
  c.coupling_dt_mode = CouplingDtMode::fixed;
  EXPECT_EQ(names(c),
            (std::vector<std::string>{
                "embedding.weight", "coupling.w1", "coupling.w2", b + "attn_norm.weight",
                b + "attn.q_proj.weight", b + "attn.k_proj.weight", b + "attn.v_proj.weight",
                b + "attn.o_proj.weight", b + "mlp_norm.weight", b + "mlp.gate_proj.weight",
                b + "mlp.up_proj.weight", b + "mlp.down_proj.weight", "final_norm.weight"}));
}

TEST(Transformer, NamesOfGpt2) {
  ModelConfig c = micro(Family::gpt2, CouplingKind::none);
  c.n_layer = 1;
  const std::string b = "blocks.0.";
  EXPECT_EQ(names(c),
            (std::vector<std::string>{
                "embedding.weight",       "positions.weight",         b + "attn_norm.weight",
                b + "attn_norm.bias",     b + "attn.q_proj.weight",   b + "attn.k_proj.weight",
                b + "attn.v_proj.weight", b + "attn.q_proj.bias",     b + "attn.k_proj.bias",
                b + "attn.v_proj.bias",   b + "attn.o_proj.weight",   b + "attn.o_proj.bias",
                b + "mlp_norm.weight",    b + "mlp_norm.bias",        b + "mlp.up_proj.weight",
                b + "mlp.up_proj.bias",   b + "mlp.down_proj.weight", b + "mlp.down_proj.bias",
                "final_norm.weight",      "final_norm.bias"}));
  c.bias = false;
  for (const std::string& name : names(c)) EXPECT_FALSE(name.ends_with("bias")) << name;
}

TEST(Transformer, CouplingOnlyInTheLayersNamed) {
  ModelConfig c = micro(Family::llama);
  c.coupling_layers = {1};
  Transformer model(c);
  model.initialize(1);
  EXPECT_FALSE(weights(model).contains("blocks.0.attn.coupling.w1"));
  EXPECT_TRUE(weights(model).contains("blocks.1.attn.coupling.w1"));
  EXPECT_EQ(model.coupling_step_sizes(),
            (std::vector<std::vector<double>>{{}, std::vector<double>(4, double{0.1F})}));
}

TEST(Transformer, DecayIsForMatricesOnly) {
  ModelConfig c = micro(Family::gpt2);
  Transformer model(c, DType::f32, kMeta);
  for (const NamedTensor& t : named_tensors(model)) {
    const bool plain = t.name.ends_with("norm.weight") || t.name.ends_with("bias") ||
                       t.name.ends_with("coupling.dt");
    EXPECT_EQ(t.owner->decay, !plain) << t.name;
  }
}

TEST(Transformer, InitialisationFollowsTheRules) {
  ModelConfig c = preset("small", Family::gpt2);
  c.coupling = CouplingKind::euler;
  c.coupling_hidden = 64;
  Transformer model(c);
  model.initialize(3);
  for (const NamedTensor& t : named_tensors(model)) {
    const std::vector<double> v = values(t.value);
    double mean = 0, square = 0;
    for (const double x : v) mean += x, square += x * x;
    mean /= static_cast<double>(v.size());
    const double stddev = std::sqrt(square / static_cast<double>(v.size()) - mean * mean);
    if (t.name.ends_with("norm.weight")) {
      EXPECT_EQ(v, std::vector<double>(v.size(), 1)) << t.name;
    } else if (t.name.ends_with("bias")) {
      EXPECT_EQ(v, std::vector<double>(v.size(), 0)) << t.name;
    } else if (t.name.ends_with("dt")) {
      EXPECT_EQ(v, std::vector<double>(v.size(), double{0.1F})) << t.name;
    } else {
      const bool residual =
          t.name.ends_with("o_proj.weight") || t.name.ends_with("down_proj.weight");
      const double expected = residual ? 0.02 / std::sqrt(8.0) : 0.02;
      EXPECT_NEAR(stddev, expected, 0.03 * expected) << t.name;
      EXPECT_NEAR(mean, 0, 0.03 * expected) << t.name;
    }
  }
}

TEST(Transformer, SharedWeightsStartEqualWhateverTheCoupling) {
  Transformer plain(micro(Family::llama, CouplingKind::none));
  Transformer coupled(micro(Family::llama));
  Transformer other_seed(micro(Family::llama));
  plain.initialize(5);
  coupled.initialize(5);
  other_seed.initialize(6);
  std::map<std::string, Tensor> a = weights(plain), b = weights(coupled), c = weights(other_seed);
  for (const auto& [name, value] : a) {
    EXPECT_EQ(values(value), values(b.at(name))) << name;
    if (name.ends_with("proj.weight")) {
      EXPECT_NE(values(value), values(c.at(name))) << name;
    }
  }
  // No two tensors of a model draw the same numbers.
  std::set<std::vector<double>> heads;
  int drawn = 0;
  for (const auto& [name, value] : b) {
    if (name.ends_with("norm.weight") || name.ends_with("dt")) continue;
    const std::vector<double> v = values(value);
    const bool residual = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
    heads.insert({v[0] * (residual ? 2 : 1), v[1] * (residual ? 2 : 1)});
    ++drawn;
  }
  EXPECT_EQ(static_cast<int>(heads.size()), drawn);
}

TEST(Transformer, LossAtStartIsThatOfAUniformGuess) {
  for (const Family family : {Family::llama, Family::gpt2}) {
    ModelConfig c = preset("tiny", family);
    Transformer model(c);
    model.initialize(1);
    const NoGradGuard no_grad;
    EXPECT_NEAR(model.loss(make_ids(2, 64, 256), make_ids(2, 64, 256, 2)).item(), std::log(256.0),
                0.05);
  }
}

TEST(Transformer, LossIsTheCrossEntropyOfTheLogits) {
  for (const std::int64_t valid : {0, 11}) {
    ModelConfig c = micro(Family::llama);
    c.valid_vocab = valid;
    const std::int64_t columns = valid == 0 ? 13 : valid;
    Transformer model(c, DType::f64);
    model.initialize(1);
    perturb(model, 0.3);
    const NoGradGuard no_grad;
    const Tensor ids = make_ids(2, 8, columns), targets = make_ids(2, 8, columns, 2);
    const Tensor logits = model.logits(ids);
    EXPECT_EQ(logits.shape(), (Shape{2, 8, columns}));
    EXPECT_NEAR(model.loss(ids, targets).item(), cross_entropy(logits, targets).item(), 1e-12);
    const Tensor last = model.logits(ids, Positions::last);
    EXPECT_EQ(last.shape(), (Shape{2, 1, columns}));
    EXPECT_LT(max_difference(last, logits.slice_view(1, 7, 8)), 1e-12);
  }
}

TEST(Transformer, EveryParameterGetsAGradientAtTheStart) {
  for (const Family family : {Family::llama, Family::gpt2}) {
    for (const CouplingSharing sharing :
         {CouplingSharing::head, CouplingSharing::layer, CouplingSharing::model}) {
      for (const CouplingKind coupling : {CouplingKind::euler, CouplingKind::none}) {
        ModelConfig c = micro(family, coupling);
        c.coupling_sharing = sharing;
        Transformer model(c);
        model.initialize(1);
        backward(model.loss(make_ids(3, 8, 13), make_ids(3, 8, 13, 2)));
        for (const auto& [name, gradient] : gradients(model)) {
          ASSERT_TRUE(gradient.defined()) << name;
          EXPECT_TRUE(std::isfinite(max_abs(gradient))) << name;
          // A bias of the keys adds the same to every score of a row: softmax does not see it. With
          // a coupling it moves the queries too.
          if (name.ends_with("k_proj.bias") && coupling == CouplingKind::none) continue;
          EXPECT_GT(max_abs(gradient), 0) << name << ' ' << enum_name(sharing);
        }
      }
    }
  }
}

// The head and the embedding are one tensor; its gradient is the sum of both uses.
TEST(Transformer, TiedGradientIsTheSumOfBothUses) {
  ModelConfig c = micro(Family::llama);
  c.n_layer = 0;
  Transformer model(c, DType::f64);
  model.initialize(1);
  const Tensor ids = make_ids(2, 8, 13), targets = make_ids(2, 8, 13, 2);
  const Tensor loss = model.loss(ids, targets);
  backward(loss);

  const Tensor value = weights(model).at("embedding.weight");
  Tensor input = clone(value), output = clone(value);
  set_requires_grad(input);
  set_requires_grad(output);
  const Tensor ones = Tensor::full({16}, 1, DType::f64);
  const Tensor untied =
      linear_cross_entropy(rms_norm(embedding(input, ids), ones), output, targets);
  backward(untied);
  EXPECT_EQ(untied.item(), loss.item());
  Tensor both = clone(grad(input));
  accumulate(both, grad(output));
  EXPECT_LT(max_difference(gradients(model).at("embedding.weight"), both), 1e-14);
  EXPECT_GT(max_abs(grad(input)), 1e-3);
  EXPECT_GT(max_abs(grad(output)), 1e-3);
}

void expect_three_steps_work(const ModelConfig& config, std::int64_t b, std::int64_t t) {
  Transformer model(config);
  model.initialize(1);
  const Tensor ids = make_ids(b, t, config.vocab_size);
  const Tensor targets = make_ids(b, t, config.vocab_size, 2);
  double first = 0, last = 0;
  for (int step = 0; step < 3; ++step) {
    const Tensor loss = model.loss(ids, targets);
    last = loss.item();
    if (step == 0) first = last;
    ASSERT_TRUE(std::isfinite(last));
    backward(loss);
    for (NamedTensor& p : named_tensors(model)) {
      if (!p.gradient().defined()) continue;
      accumulate(p.value, scale(p.gradient(), -0.1));
    }
    drop_gradients(model);
  }
  if (config.vocab_size == 1) {
    EXPECT_EQ(last, 0);
  } else {
    EXPECT_LT(last, first);
  }
  KvCache cache = model.make_cache(b);
  const std::int64_t new_tokens = std::min<std::int64_t>(3, config.block_size);
  for (std::int64_t i = 0; i < new_tokens; ++i) {
    const Tensor logits = model.logits(make_ids(b, 1, config.vocab_size), cache, Positions::last);
    EXPECT_EQ(logits.shape(), (Shape{b, 1, config.vocab_size}));
    EXPECT_TRUE(std::isfinite(max_abs(logits)));
  }
}

TEST(Transformer, SmallestShapesTrainAndDecode) {
  for (const Family family : {Family::llama, Family::gpt2}) {
    for (const CouplingKind coupling : {CouplingKind::none, CouplingKind::euler}) {
      ModelConfig c = micro(family, coupling);
      expect_three_steps_work(c, 1, 8);
      expect_three_steps_work(c, 3, 1);
      c.n_layer = 0;
      expect_three_steps_work(c, 2, 8);
      c.n_layer = 1;
      expect_three_steps_work(c, 1, 1);
      c.n_head = 1;
      expect_three_steps_work(c, 2, 8);
      c.vocab_size = 1;
      expect_three_steps_work(c, 2, 8);
      c = micro(family, coupling);
      c.block_size = 1;
      c.n_embd = family == Family::llama ? 8 : 4;
      c.d_ff = 1;
      c.coupling_hidden = 1;
      expect_three_steps_work(c, 1, 1);
    }
  }
}

TEST(Transformer, DropoutActsInTrainingOnlyAndIsKeyed) {
  for (const Family family : {Family::llama, Family::gpt2}) {
    ModelConfig c = micro(family);
    c.dropout = 0.3;
    Transformer dropped(c, DType::f64);
    c.dropout = 0;
    Transformer plain(c, DType::f64);
    dropped.initialize(1);
    plain.initialize(1);
    const NoGradGuard no_grad;
    const Tensor ids = make_ids(2, 8, 13), targets = make_ids(2, 8, 13, 2);
    const auto loss = [&](const Transformer& m, const ForwardContext& context) {
      return m.loss(ids, targets, {}, context).item();
    };
    const double off = loss(plain, {.training = true});
    EXPECT_EQ(loss(dropped, {.seed = 1, .step = 3}), off);
    const ForwardContext base{1, 3, 0, true};
    const double on = loss(dropped, base);
    EXPECT_NE(on, off);
    EXPECT_EQ(loss(dropped, base), on);
    EXPECT_NE(loss(dropped, {2, 3, 0, true}), on);
    EXPECT_NE(loss(dropped, {1, 4, 0, true}), on);
    EXPECT_NE(loss(dropped, {1, 3, 1, true}), on);
    EXPECT_EQ(values(dropped.logits(ids)), values(plain.logits(ids)));
  }
}

// Where dropout stands, and that layers draw their own masks: every layer, both branches.
TEST(Transformer, DropoutKeysDifferByPlace) {
  const Tensor x = Tensor::full({1, 1, 64}, 1, DType::f64);
  const ForwardContext context{1, 2, 0, true};
  std::set<std::vector<double>> masks;
  for (const RandomUse use : {kUseDropoutEmbedding, kUseDropoutAttention, kUseDropoutMlp}) {
    for (const std::int64_t layer : {0, 1}) {
      masks.insert(values(model_dropout(x, 0.5, layer, use, context)));
    }
  }
  EXPECT_EQ(masks.size(), 6U);
}

TEST(Transformer, GraphNodesCarryThePathsOfTheirModules) {
  ModelConfig c = micro(Family::llama);
  for (const RecomputeMode mode : {RecomputeMode::none, RecomputeMode::attn}) {
    c.recompute = mode;
    Transformer model(c);
    model.initialize(1);
    const Tensor loss = model.loss(make_ids(2, 8, 13), make_ids(2, 8, 13, 2));
    std::set<std::string> paths;
    std::vector<std::shared_ptr<Node>> open = {loss.grad_meta()->grad_fn};
    std::set<const Node*> seen;
    while (!open.empty()) {
      const std::shared_ptr<Node> node = open.back();
      open.pop_back();
      if (node->is_leaf() || !seen.insert(node.get()).second) continue;
      paths.insert(scope_path(node->scope));
      for (const Node::Edge& e : node->edges) {
        if (e.node) open.push_back(e.node);
      }
    }
    std::set<std::string> expected = {"embedding", "final_norm", "head"};
    for (const std::string block : {"blocks.0", "blocks.1"}) {
      expected.insert(
          {block + ".attn", block + ".mlp", block + ".mlp_norm", block + ".mlp.down_proj"});
      if (mode == RecomputeMode::attn) continue;  // the branch is one node
      expected.insert({block + ".attn_norm", block + ".attn.coupling", block + ".attn.o_proj"});
    }
    // The second block's norm adds what the first returns, but for one that runs again.
    if (mode == RecomputeMode::attn) expected.insert("blocks.1");
    EXPECT_EQ(paths, expected);
  }
}

TEST(Transformer, RefusesTokensThatDoNotFit) {
  Transformer model(micro(Family::llama));
  model.initialize(1);
  EXPECT_EQ(message_of([&] { model.logits(make_ids(1, 9, 13)); }, ErrorKind::shape),
            "transformer: ids are longer than the context: got 9 tokens, expected at most "
            "block_size 8; cut the sequence, or train a model with a larger block_size");
  EXPECT_EQ(
      message_of([&] { model.loss(make_ids(1, 8, 13), make_ids(1, 7, 13)); }, ErrorKind::shape),
      "transformer: ids and targets differ: got [1, 8] and [1, 7], expected one target per id");
  EXPECT_EQ(
      message_of([&] { model.logits(make_ids(1, 8, 13).slice_view(0, 0, 1).reshape_view({8})); },
                 ErrorKind::shape),
      "transformer: ids have the wrong number of dimensions: got [8], expected [B, T]");
}

}  // namespace
}  // namespace duet::test
