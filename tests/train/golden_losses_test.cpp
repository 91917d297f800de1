// Ten training steps of two tiny models against PyTorch: same weights, tokens and AdamW.
// tests/golden/tiny_*.safetensors come from tools/make_golden.py, computed in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "models/transformer.h"
#include "runtime/memory_ops.h"
#include "runtime/safetensors.h"
#include "train/trainer.h"

namespace duet::test {
namespace {

struct Golden {
  ModelConfig model;
  RunConfig run;
  double lr = 0;
};

Golden read_settings(const SafetensorsFile& file) {
  const auto c = nlohmann::json::parse(file.metadata().at("config"));
  const auto o = nlohmann::json::parse(file.metadata().at("optimizer"));
  Golden g;
  g.model = family_defaults(c.at("family") == "llama" ? Family::llama : Family::gpt2);
  g.model.n_layer = c.at("n_layer");
  g.model.n_head = c.at("n_head");
  g.model.n_kv_head = c.at("n_kv_head");
  g.model.n_embd = c.at("n_embd");
  g.model.d_ff = c.at("d_ff");
  g.model.block_size = c.at("block_size");
  g.model.vocab_size = c.at("vocab_size");
  g.model.coupling = c.at("coupling") == "euler" ? CouplingKind::euler : CouplingKind::none;
  g.model.coupling_steps = c.at("coupling_steps");
  g.model.coupling_hidden = c.at("coupling_hidden");
  g.lr = o.at("lr");
  g.run.beta1 = o.at("beta1");
  g.run.beta2 = o.at("beta2");
  g.run.adam_eps = o.at("eps");
  g.run.weight_decay = o.at("weight_decay");
  g.run.grad_clip = o.at("grad_clip");
  g.run.model = g.model;
  return g;
}

// Step `step` of the token list: [B, T + 1] becomes ids and targets [B, T].
Batch batch_of(const Tensor& tokens, std::int64_t step) {
  const Tensor rows = tokens.slice_view(0, step, step + 1);
  const std::int64_t b = tokens.size(1), t = tokens.size(2) - 1;
  Batch batch;
  batch.ids = clone(rows.slice_view(2, 0, t)).reshape_view({b, t});
  batch.targets = clone(rows.slice_view(2, 1, t + 1)).reshape_view({b, t});
  batch.counted = b * t;
  return batch;
}

void expect_golden_losses(const std::string& name, DType dtype, double tolerance) {
  const SafetensorsFile file =
      SafetensorsFile::open(std::string(DUET_SOURCE_DIR) + "/tests/golden/" + name);
  const Golden g = read_settings(file);
  Transformer model(g.model, dtype);
  for (NamedTensor& t : named_tensors(model)) {
    ASSERT_EQ(file.entry(t.name).shape, t.value.shape()) << t.name;
    file.read_into(t.name, t.value);
  }
  const AdamWOptions options{g.run.beta1, g.run.beta2, g.run.adam_eps, g.run.weight_decay};
  AdamW optimizer(named_tensors(model), options);
  const Tensor tokens = file.load("tokens");
  const Tensor losses = file.load("losses"), norms = file.load("grad_norms");
  for (std::int64_t step = 0; step < tokens.size(0); ++step) {
    const StepResult r = train_step(model, optimizer, g.run, step, g.lr, {batch_of(tokens, step)});
    const double expected = losses.data<double>()[step];
    EXPECT_NEAR(r.loss, expected, tolerance * std::abs(expected)) << "step " << step;
    const double norm = norms.data<double>()[step];
    EXPECT_NEAR(r.grad_norm, norm, 100 * tolerance * norm) << "step " << step;
  }
}

TEST(GoldenLosses, LlamaCoupledInFloat64) {
  expect_golden_losses("tiny_llama.safetensors", DType::f64, 1e-8);
}
TEST(GoldenLosses, LlamaCoupledInFloat32) {
  expect_golden_losses("tiny_llama.safetensors", DType::f32, 1e-4);
}
TEST(GoldenLosses, Gpt2InFloat64) {
  expect_golden_losses("tiny_gpt2.safetensors", DType::f64, 1e-8);
}
TEST(GoldenLosses, Gpt2InFloat32) {
  expect_golden_losses("tiny_gpt2.safetensors", DType::f32, 1e-4);
}

}  // namespace
}  // namespace duet::test
