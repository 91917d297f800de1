// What the paper's equations imply for a whole model (arXiv 2604.01683).
#include "autograd/saved_tensor.h"
#include "models/enum_names.h"
#include "tests/models/model_helpers.h"

namespace duet::test {
namespace {

// Perturbs `plain`, a model without coupling, and gives its weights to `coupled`; expects the same
// logits and the same gradients of what both have, to the last bit. Returns those of `coupled`.
std::map<std::string, Tensor> gradients_equal_to_none(Transformer& coupled, Transformer& plain,
                                                      const Tensor& ids, const Tensor& targets) {
  plain.initialize(2);
  perturb(plain, 0.2);
  copy_weights(coupled, plain);
  EXPECT_EQ(values(coupled.logits(ids)), values(plain.logits(ids)));
  backward(coupled.loss(ids, targets));
  backward(plain.loss(ids, targets));
  std::map<std::string, Tensor> g = gradients(coupled);
  for (const auto& [name, expected] : gradients(plain)) {
    EXPECT_EQ(values(g.at(name)), values(expected)) << name;
  }
  return g;
}

// Fact 1: with dt = 0 nothing is left of the coupling, to the last bit, in logits and gradients.
TEST(CouplingFacts, ZeroStepSizeEqualsNoneBitForBit) {
  const Tensor ids = make_ids(2, 8, 13), targets = make_ids(2, 8, 13, 2);
  for (const CouplingKind kind : kCouplings) {
    if (kind == CouplingKind::affine) continue;  // no step size: below
    for (const Family family : {Family::llama, Family::gpt2}) {
      for (const DType dtype : {DType::f32, DType::f64}) {
        for (const std::int64_t kv_heads : {4, 2}) {
          for (const std::int64_t steps : {1, 3}) {
            for (const CouplingRope order : {CouplingRope::before, CouplingRope::after}) {
              // The other maps share the way of euler: fewer settings suffice.
              if (kind != CouplingKind::euler && (dtype == DType::f64 || steps == 1)) continue;
              ModelConfig c = micro(family, kind);
              c.n_kv_head = kv_heads;
              c.coupling_steps = steps;
              c.coupling_rope = order;
              c.coupling_dt = 0;
              Transformer coupled(c, dtype);
              coupled.initialize(2);
              // As perturbed as the plain one, but for dt.
              c.coupling = CouplingKind::none;
              SCOPED_TRACE(concat(enum_name(kind), ' ', enum_name(family), ' ', dtype, " kv heads ",
                                  kv_heads, " steps ", steps));
              Transformer plain(c, dtype);
              const auto g = gradients_equal_to_none(coupled, plain, ids, targets);
              EXPECT_GT(max_abs(g.at("blocks.0.attn.coupling.dt")), 0);
            }
          }
        }
      }
    }
  }
}

// Fact 1 for affine, which starts as the identity: the same values as none, forward and backward,
// whatever the other weights. Its own first layers have no gradient before the last ones move.
TEST(CouplingFacts, AffineAtInitialisationEqualsNone) {
  const Tensor ids = make_ids(2, 8, 13), targets = make_ids(2, 8, 13, 2);
  for (const Family family : {Family::llama, Family::gpt2}) {
    for (const std::int64_t kv_heads : {4, 2}) {
      ModelConfig c = micro(family, CouplingKind::affine);
      c.n_kv_head = kv_heads;
      c.coupling_steps = 2;
      Transformer coupled(c);
      coupled.initialize(2);
      c.coupling = CouplingKind::none;
      SCOPED_TRACE(enum_name(family));
      Transformer plain(c);
      const auto g = gradients_equal_to_none(coupled, plain, ids, targets);
      for (const std::string layer : {"blocks.0.", "blocks.1."}) {
        EXPECT_EQ(max_abs(g.at(layer + "attn.coupling.w1")), 0);
        EXPECT_GT(max_abs(g.at(layer + "attn.coupling.w2")), 0);
      }
      // One step of plain gradient descent, and all of it learns and matters.
      for (NamedTensor& t : named_tensors(coupled)) accumulate(t.value, scale(t.gradient(), -0.5));
      for (NamedTensor& t : named_tensors(plain)) accumulate(t.value, scale(t.gradient(), -0.5));
      drop_gradients(coupled);
      EXPECT_GT(max_difference(coupled.logits(ids), plain.logits(ids)), 1e-6);
      backward(coupled.loss(ids, targets));
      for (const auto& [name, gradient] : gradients(coupled)) {
        EXPECT_GT(max_abs(gradient), 0) << name << ' ' << enum_name(family);
      }
    }
  }
}

// Fact 2, composed of ops: euler with n = 1 is plain attention with W_q + dt W_k for W_q, and keys
// k + dt f(q).
Tensor reference_logits(Transformer& model, const Tensor& ids) {
  const ModelConfig& c = model.config();
  const std::int64_t b = ids.size(0), t = ids.size(1), h = c.n_head, d = c.head_dim();
  const std::map<std::string, Tensor> w = weights(model);
  const Tensor table = rope_table(c.block_size, d, 10'000, DType::f64, kCpu);
  Tensor x = embedding(w.at("embedding.weight"), ids);
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    const std::string p = "blocks." + std::to_string(i) + ".";
    const auto weight = [&](const char* name) { return w.at(p + name); };
    const Tensor wq = weight("attn.q_proj.weight"), wk = weight("attn.k_proj.weight");
    const Tensor dt = reshape(weight("attn.coupling.dt"), {h, 1, 1});
    const Tensor by_head = reshape(wk, {h, d, c.n_embd});
    const Tensor wq_moved = add(wq, reshape(mul(dt, by_head), {h * d, c.n_embd}));
    const Tensor n = rms_norm(x, weight("attn_norm.weight"));
    const Shape heads = {b, t, h, d};
    // [H, B T, D], so that each head meets its own net.
    const Tensor q = transpose(reshape(linear(n, wq), {b * t, h, d}), 0, 1);
    const Tensor w1 = transpose(weight("attn.coupling.w1"), 1, 2);
    const Tensor w2 = transpose(weight("attn.coupling.w2"), 1, 2);
    const Tensor f = mul(dt, matmul(silu(matmul(q, w1)), w2));
    const Tensor k =
        add(reshape(linear(n, wk), heads), reshape(contiguous(transpose(f, 0, 1)), heads));
    const Tensor q_moved = reshape(linear(n, wq_moved), heads);
    const Tensor v = reshape(linear(n, weight("attn.v_proj.weight")), heads);
    const Tensor a = attention(rope(q_moved, table), rope(k, table), v);
    x = add(x, linear(reshape(a, {b, t, h * d}), weight("attn.o_proj.weight")));
    const Tensor m = rms_norm(x, weight("mlp_norm.weight"));
    const Tensor gate = silu(linear(m, weight("mlp.gate_proj.weight")));
    x = add(x, linear(mul(gate, linear(m, weight("mlp.up_proj.weight"))),
                      weight("mlp.down_proj.weight")));
  }
  return linear(rms_norm(x, w.at("final_norm.weight")), w.at("embedding.weight"));
}

TEST(CouplingFacts, OneEulerStepIsAShiftedProjectionAndMovedKeys) {
  Transformer model(micro(Family::llama), DType::f64);
  model.initialize(2);
  perturb(model, 0.3);
  const NoGradGuard no_grad;
  const Tensor ids = make_ids(2, 8, 13);
  const Tensor logits = model.logits(ids);
  ASSERT_GT(max_abs(logits), 0.1);
  EXPECT_LT(max_difference(logits, reference_logits(model, ids)), 1e-12);
}

TEST(CouplingFacts, CouplingChangesTheLogits) {
  std::vector<Tensor> all;
  const Tensor ids = make_ids(2, 8, 13);
  const auto add_logits = [&](const ModelConfig& c, std::uint64_t weights_seed = 2) {
    Transformer model(c, DType::f64);
    model.initialize(weights_seed);
    Transformer base(micro(Family::llama, CouplingKind::none), DType::f64);
    base.initialize(2);
    perturb(base, 0.3);
    copy_weights(model, base);
    const NoGradGuard no_grad;
    all.push_back(model.logits(ids));
  };
  ModelConfig c = micro(Family::llama, CouplingKind::none);
  add_logits(c);
  for (const CouplingKind kind : kCouplings) {
    c.coupling = kind;
    if (kind != CouplingKind::affine) add_logits(c);  // which starts as none
  }
  c.coupling = CouplingKind::euler;
  c.coupling_steps = 2;
  add_logits(c);
  c.coupling_dt = 0.2;
  add_logits(c);
  c.coupling_rope = CouplingRope::after;
  c.coupling_hidden = 8;
  add_logits(c);
  c.coupling_layers = {1};
  add_logits(c);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_GT(max_difference(all[i], all[j]), 1e-9) << i << " and " << j;
    }
  }
}

// The three ways to write one step size give one model; softplus keeps it positive.
TEST(CouplingFacts, StepSizeModesStartEqual) {
  std::vector<Tensor> all;
  for (const CouplingDtMode mode :
       {CouplingDtMode::raw, CouplingDtMode::softplus, CouplingDtMode::fixed}) {
    ModelConfig c = micro(Family::llama);
    c.coupling_dt = 0.37;
    c.coupling_dt_mode = mode;
    Transformer model(c, DType::f64);
    model.initialize(2);
    const std::vector<std::vector<double>> dt = model.coupling_step_sizes();
    ASSERT_EQ(dt.size(), 2U);
    ASSERT_EQ(dt[0].size(), 4U);
    for (const double value : dt[1]) EXPECT_NEAR(value, 0.37, 1e-15);
    EXPECT_EQ(weights(model).contains("blocks.0.attn.coupling.dt"), mode != CouplingDtMode::fixed);
    const NoGradGuard no_grad;
    all.push_back(model.logits(make_ids(2, 8, 13)));
  }
  EXPECT_EQ(values(all[0]), values(all[2]));
  EXPECT_LT(max_difference(all[0], all[1]), 1e-14);
}

TEST(CouplingFacts, ShapesFollowTheSharing) {
  ModelConfig c = micro(Family::llama);
  c.n_kv_head = 2;
  const auto shape_of = [&](CouplingSharing sharing, const std::string& name) {
    c.coupling_sharing = sharing;
    Transformer model(c, DType::f32, kMeta);
    return weights(model).at(name).shape();
  };
  EXPECT_EQ(shape_of(CouplingSharing::head, "blocks.1.attn.coupling.w1"), (Shape{2, 3, 4}));
  EXPECT_EQ(shape_of(CouplingSharing::head, "blocks.1.attn.coupling.w2"), (Shape{2, 4, 3}));
  EXPECT_EQ(shape_of(CouplingSharing::head, "blocks.1.attn.coupling.dt"), (Shape{2}));
  EXPECT_EQ(shape_of(CouplingSharing::layer, "blocks.1.attn.coupling.w1"), (Shape{1, 3, 4}));
  EXPECT_EQ(shape_of(CouplingSharing::layer, "blocks.1.attn.coupling.dt"), (Shape{2}));
  EXPECT_EQ(shape_of(CouplingSharing::model, "coupling.w1"), (Shape{2, 3, 4}));
  EXPECT_EQ(shape_of(CouplingSharing::model, "blocks.0.attn.coupling.dt"), (Shape{2}));
  c.coupling = CouplingKind::affine;
  EXPECT_EQ(shape_of(CouplingSharing::head, "blocks.1.attn.coupling.w1"), (Shape{2, 2, 3, 4}));
  EXPECT_EQ(shape_of(CouplingSharing::head, "blocks.1.attn.coupling.w2"), (Shape{2, 2, 8, 3}));
  EXPECT_EQ(shape_of(CouplingSharing::layer, "blocks.1.attn.coupling.w1"), (Shape{1, 2, 3, 4}));
  EXPECT_EQ(shape_of(CouplingSharing::model, "coupling.w2"), (Shape{2, 2, 8, 3}));
  c.coupling = CouplingKind::hamiltonian_potential;
  EXPECT_EQ(shape_of(CouplingSharing::head, "blocks.1.attn.coupling.w1"), (Shape{2, 3, 4}));
  EXPECT_EQ(shape_of(CouplingSharing::head, "blocks.1.attn.coupling.w2"), (Shape{2, 1, 3}));
  EXPECT_EQ(shape_of(CouplingSharing::model, "coupling.w2"), (Shape{2, 1, 3}));
  EXPECT_EQ(shape_of(CouplingSharing::head, "blocks.1.attn.coupling.dt"), (Shape{2}));
  c.coupling = CouplingKind::affine;
  c.coupling_sharing = CouplingSharing::head;
  Transformer affine(c, DType::f32, kMeta);
  EXPECT_FALSE(weights(affine).contains("blocks.0.attn.coupling.dt"));
  EXPECT_TRUE(affine.coupling_step_sizes().empty());
}

// One f for all heads of a layer, but a step size for each of them: the same as equal nets, and the
// gradient of f is the sum of theirs.
TEST(CouplingFacts, HeadsThatShareANetKeepTheirOwnStepSizes) {
  const Tensor ids = make_ids(2, 8, 13), targets = make_ids(2, 8, 13, 2);
  for (const CouplingKind kind : kCouplings) {
    if (kind == CouplingKind::affine) continue;
    SCOPED_TRACE(enum_name(kind));
    ModelConfig c = micro(Family::llama, kind);
    c.n_kv_head = 2;
    c.coupling_steps = 2;
    Transformer apart(c, DType::f64);
    c.coupling_sharing = CouplingSharing::layer;
    Transformer shared(c, DType::f64);
    shared.initialize(2);
    perturb(shared, 0.2);  // dt too: no two heads have the same
    std::map<std::string, Tensor> from = weights(shared), to = weights(apart);
    for (auto& [name, value] : to) copy(value, from.at(name).expand_view(value.shape()));
    EXPECT_LT(max_difference(shared.logits(ids), apart.logits(ids)), 1e-12);
    backward(shared.loss(ids, targets));
    backward(apart.loss(ids, targets));
    const std::map<std::string, Tensor> sums = gradients(shared), own = gradients(apart);
    for (const auto& [name, gradient] : sums) {
      const Tensor& each = own.at(name);
      const Tensor total = each.shape() == gradient.shape() ? each : sum(each, {0}, true);
      EXPECT_LT(max_difference(gradient, total), 1e-12) << name;
    }
  }
}

// A net shared by the layers is one net: its gradient is the sum over the layers.
TEST(CouplingFacts, ASharedNetSumsTheGradientsOfItsLayers) {
  ModelConfig c = micro(Family::llama);
  Transformer apart(c, DType::f64);
  c.coupling_sharing = CouplingSharing::model;
  Transformer shared(c, DType::f64);
  shared.initialize(2);
  apart.initialize(2);
  perturb(shared, 0.2);
  copy_weights(apart, shared);
  std::map<std::string, Tensor> net = weights(shared), own = weights(apart);
  for (const std::string layer : {"blocks.0.attn.", "blocks.1.attn."}) {
    for (const std::string w : {"coupling.w1", "coupling.w2"}) copy(own.at(layer + w), net.at(w));
  }
  const Tensor ids = make_ids(2, 8, 13), targets = make_ids(2, 8, 13, 2);
  backward(shared.loss(ids, targets));
  backward(apart.loss(ids, targets));
  std::map<std::string, Tensor> g = gradients(shared), h = gradients(apart);
  for (const std::string w : {"coupling.w1", "coupling.w2"}) {
    Tensor sum = clone(h.at("blocks.0.attn." + w));
    accumulate(sum, h.at("blocks.1.attn." + w));
    EXPECT_LT(max_difference(g.at(w), sum), 1e-15);
    EXPECT_GT(max_abs(sum), 1e-6);
  }
}

// The fused ops run their steps again in backward, or back: what is kept does not grow with n. Run
// back, they keep their outputs in the place of their inputs: as much.
TEST(CouplingFacts, SavedBytesDoNotGrowWithTheSteps) {
  for (const CouplingKind kind : kCouplings) {
    if (kind == CouplingKind::hamiltonian_potential) continue;  // composed: below
    const bool invertible = kind == CouplingKind::leapfrog ||
                            kind == CouplingKind::symplectic_euler || kind == CouplingKind::affine;
    std::vector<std::size_t> saved;
    for (const bool run_back : {false, true}) {
      if (run_back && !invertible) continue;
      for (const std::int64_t steps : {1, 7}) {
        ModelConfig c = micro(Family::llama, kind);
        c.coupling_steps = steps;
        c.coupling_run_back = run_back;
        Transformer model(c);
        model.initialize(1);
        const std::size_t before = saved_bytes();
        const Tensor loss = model.loss(make_ids(2, 8, 13), make_ids(2, 8, 13, 2));
        saved.push_back(saved_bytes() - before);
      }
    }
    EXPECT_EQ(saved, std::vector<std::size_t>(saved.size(), saved[0])) << enum_name(kind);
  }
}

// What is composed of ops keeps what each of them needs, once more with every step; recompute takes
// it back.
TEST(CouplingFacts, SavedBytesOfThePotentialGrowWithTheSteps) {
  std::map<RecomputeMode, std::vector<std::size_t>> saved;
  for (const RecomputeMode mode : {RecomputeMode::none, RecomputeMode::attn}) {
    for (const std::int64_t steps : {1, 2, 3}) {
      ModelConfig c = micro(Family::llama, CouplingKind::hamiltonian_potential);
      c.coupling_steps = steps;
      c.recompute = mode;
      Transformer model(c);
      model.initialize(1);
      const std::size_t before = saved_bytes();
      const Tensor loss = model.loss(make_ids(2, 8, 13), make_ids(2, 8, 13, 2));
      saved[mode].push_back(saved_bytes() - before);
    }
  }
  const std::vector<std::size_t>& none = saved[RecomputeMode::none];
  EXPECT_GT(none[1], none[0]);
  EXPECT_EQ(none[2] - none[1], none[1] - none[0]);
  const std::vector<std::size_t>& again = saved[RecomputeMode::attn];
  EXPECT_EQ(again, std::vector<std::size_t>(3, again[0]));
  EXPECT_LT(again[0], none[0]);
}

// Without training the force still needs a graph of U; it must not outlive the call.
TEST(CouplingFacts, ThePotentialKeepsNoGraphUnderNoGrad) {
  Transformer model(micro(Family::llama, CouplingKind::hamiltonian_potential));
  model.initialize(1);
  const NoGradGuard no_grad;
  const std::size_t before = saved_bytes();
  const Tensor logits = model.logits(make_ids(1, 4, 13));
  EXPECT_FALSE(grad_enabled());
  EXPECT_FALSE(requires_grad(logits));
  EXPECT_EQ(saved_bytes(), before);
  for (const auto& [name, gradient] : gradients(model)) EXPECT_FALSE(gradient.defined()) << name;
}

// Running back restores the trajectory to rounding: the same gradients, near enough.
TEST(CouplingFacts, RunningBackGivesTheSameGradients) {
  for (const CouplingKind kind :
       {CouplingKind::leapfrog, CouplingKind::symplectic_euler, CouplingKind::affine}) {
    std::map<std::string, Tensor> g[2];
    std::vector<double> loss;
    for (const bool run_back : {false, true}) {
      ModelConfig c = micro(Family::llama, kind);
      c.n_kv_head = 2;
      c.coupling_steps = 5;
      c.coupling_run_back = run_back;
      Transformer model(c);
      model.initialize(1);
      perturb(model, 0.3);
      const Tensor out = model.loss(make_ids(2, 8, 13), make_ids(2, 8, 13, 2));
      loss.push_back(out.item());
      backward(out);
      g[run_back ? 1 : 0] = gradients(model);
    }
    EXPECT_EQ(loss[0], loss[1]);
    for (const auto& [name, want] : g[0]) {
      EXPECT_LT(max_difference(g[1].at(name), want), 1e-5 * std::max(1.0, max_abs(want))) << name;
    }
  }
}

}  // namespace
}  // namespace duet::test
