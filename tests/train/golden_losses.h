// Ten training steps of a tiny model with the weights and tokens of tests/golden/tiny_*.safetensors
// (tools/make_golden.py made them with PyTorch, in float64).
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/transformer.h"
#include "runtime/memory_ops.h"
#include "runtime/safetensors.h"
#include "train/trainer.h"

namespace duet::test {

inline SafetensorsFile golden_file(const std::string& name) {
  return SafetensorsFile::open(std::string(DUET_SOURCE_DIR) + "/tests/golden/" + name);
}

struct Golden {
  ModelConfig model;
  RunConfig run;
  double lr = 0;
};

inline Golden read_settings(const SafetensorsFile& file) {
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
inline Batch batch_of(const Tensor& tokens, std::int64_t step) {
  const Tensor rows = tokens.slice_view(0, step, step + 1);
  const std::int64_t b = tokens.size(1), t = tokens.size(2) - 1;
  Batch batch;
  batch.ids = clone(rows.slice_view(2, 0, t)).reshape_view({b, t});
  batch.targets = clone(rows.slice_view(2, 1, t + 1)).reshape_view({b, t});
  batch.counted = b * t;
  return batch;
}

inline std::vector<StepResult> ten_steps(const SafetensorsFile& file, const Golden& g,
                                         Transformer& model) {
  AdamW optimizer(named_tensors(model), adamw_options(g.run));
  const Tensor tokens = file.load("tokens");
  std::vector<StepResult> steps;
  for (std::int64_t step = 0; step < tokens.size(0); ++step) {
    const Batch batch = to_device(batch_of(tokens, step), model.device());
    steps.push_back(train_step(model, optimizer, g.run, step, g.lr, {batch}));
  }
  return steps;
}

// Against PyTorch's: losses to `tolerance`, gradient norms to 100 times that, both relative.
inline void expect_golden_losses(const std::string& name, DType dtype, Device device,
                                 double tolerance) {
  const SafetensorsFile file = golden_file(name);
  const Golden g = read_settings(file);
  Transformer model(g.model, dtype, device);
  for (NamedTensor& t : named_tensors(model)) {
    ASSERT_EQ(file.entry(t.name).shape, t.value.shape()) << t.name;
    file.read_into(t.name, t.value);
  }
  const Tensor losses = file.load("losses"), norms = file.load("grad_norms");
  const std::vector<StepResult> steps = ten_steps(file, g, model);
  for (std::size_t step = 0; step < steps.size(); ++step) {
    const double expected = losses.data<double>()[step], norm = norms.data<double>()[step];
    EXPECT_NEAR(steps[step].loss, expected, tolerance * std::abs(expected)) << "step " << step;
    EXPECT_NEAR(steps[step].grad_norm, norm, 100 * tolerance * norm) << "step " << step;
  }
}

}  // namespace duet::test
