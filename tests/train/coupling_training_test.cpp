// Every coupling with every scoring in every family, with and without grouped queries: the run
// learns, uses all its parameters, resumes to the same bits, generates, and decodes as it trained.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <string>
#include <tuple>

#include "models/enum_names.h"
#include "models/transformer.h"
#include "runtime/memory_ops.h"
#include "runtime/safetensors.h"
#include "tests/train/train_support.h"
#include "train/checkpoint.h"
#include "train/checkpoint_files.h"
#include "train/manifest.h"
#include "train/sampler.h"
#include "train/trainer.h"

namespace duet::test {
namespace {

constexpr Scoring kScorings[] = {Scoring::softmax, Scoring::diff, Scoring::diff_v2};
constexpr CouplingKind kKinds[] = {CouplingKind::none,      CouplingKind::euler,
                                   CouplingKind::leapfrog,  CouplingKind::symplectic_euler,
                                   CouplingKind::uncoupled, CouplingKind::uncoupled_k,
                                   CouplingKind::affine,    CouplingKind::hamiltonian_potential};

using Combination = std::tuple<CouplingKind, Scoring, Family, std::int64_t>;  // key heads

RunConfig run_of(const TempDirectory& dir, const Combination& combination) {
  const auto& [coupling, scoring, family, key_heads] = combination;
  RunConfig config = tiny_run(dir);
  ModelConfig& m = config.model;
  const ModelConfig defaults = family_defaults(family);
  m.family = family;
  m.activation = defaults.activation;
  m.bias = defaults.bias;
  m.n_head = 4;
  m.n_kv_head = key_heads;
  m.n_embd = 32;
  m.coupling = coupling;
  m.coupling_steps = 2;
  m.scoring = scoring;
  config.batch_size = 8;
  config.max_iters = 20;
  config.eval_interval = 10;
  return config;
}

double mean(const std::vector<double>& v, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += v[i];
  return sum / static_cast<double>(end - begin);
}

bool any_nonzero(const Tensor& t) {
  const Tensor flat = contiguous_copy(t);
  const float* p = flat.data<float>();
  return std::any_of(p, p + flat.numel(), [](float v) { return v != 0; });
}

// Runs to the end, with a stop and a resume after each of `stops`; the path of the last checkpoint.
std::string run_to_end(RunConfig config, const std::vector<std::int64_t>& stops,
                       std::vector<double>& losses, const StepHooks& hooks = {}) {
  std::string last;
  for (std::size_t part = 0; part <= stops.size(); ++part) {
    Recorder reporter;
    const StopScope stop;
    reporter.after_step = [&](const StepReport& r) {
      losses.push_back(r.loss);
      if (part < stops.size() && r.step == stops[part]) request_stop(15);
    };
    TrainContext context;
    context.reporter = &reporter;
    context.hooks = hooks;
    last = train(config, context).checkpoint;
    config.resume = true;
  }
  return last;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  Tensor x = Tensor::empty(a.shape(), DType::f64), y = Tensor::empty(b.shape(), DType::f64);
  copy(x, a);
  copy(y, b);
  double most = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    most = std::max(most, std::abs(x.data<double>()[i] - y.data<double>()[i]));
  }
  return most;
}

// The logits of the model's weights in f64, where the smallest effect of a young coupling is far
// above rounding.
Tensor exact_logits(Transformer& model, const ModelConfig& config, const Tensor& ids) {
  Transformer exact(config, DType::f64);
  for (NamedTensor& to : named_tensors(exact)) {
    for (const NamedTensor& from : named_tensors(model)) {
      if (from.name == to.name) copy(to.value, from.value);
    }
  }
  return exact.logits(ids);
}

class CouplingTraining : public testing::TestWithParam<Combination> {};

TEST_P(CouplingTraining, LearnsResumesAndGenerates) {
  const CouplingKind coupling = std::get<0>(GetParam());
  const TempDirectory dir;
  RunConfig config = run_of(dir, GetParam());

  StepHooks hooks;
  hooks.after_backward = [&](std::int64_t step, const std::vector<NamedTensor>& tensors) {
    for (const NamedTensor& t : tensors) {
      ASSERT_TRUE(t.gradient().defined()) << t.name;
      // affine starts as the identity: its first layer learns once the last one has moved, and the
      // first update of the warm-up moves it.
      const bool still =
          coupling == CouplingKind::affine && step == 0 && t.name.ends_with("coupling.w1");
      EXPECT_NE(any_nonzero(t.gradient()), still) << t.name << " at step " << step;
    }
  };
  std::vector<double> losses, again;
  const std::string checkpoint = run_to_end(config, {}, losses, hooks);
  ASSERT_EQ(losses.size(), 20U);
  EXPECT_LT(mean(losses, 16, 20), mean(losses, 0, 4) - 0.5);

  config.out_dir = dir.file("interrupted");
  const std::string resumed = run_to_end(config, {7, 10}, again);
  EXPECT_EQ(again, losses);
  EXPECT_TRUE(checkpoint_tensors(resumed) == checkpoint_tensors(checkpoint));

  Recorder quiet;
  const CheckpointReader reader = CheckpointReader::open(checkpoint, quiet);
  Transformer model(reader.model_config());
  reader.load_weights(named_tensors(model));
  const std::vector<std::int32_t> prompt{'a', 'b'};
  EXPECT_EQ(generate(model, prompt, {.max_new_tokens = 5}).tokens.size(), 5U);

  // Decoding token by token gives the logits of the whole; without the coupling they are others.
  const NoGradGuard no_grad;
  Tensor ids = Tensor::empty({1, 8}, DType::i32);
  for (std::int32_t i = 0; i < 8; ++i) ids.mutable_data<std::int32_t>()[i] = 'a' + i * 3 % 8;
  const Tensor whole = model.logits(ids);
  KvCache cache = model.make_cache(1);
  for (std::int64_t t = 0; t < 8; ++t) {
    const Tensor one = model.logits(clone(ids.slice_view(1, t, t + 1)), cache);
    EXPECT_LT(largest_difference(one, whole.slice_view(1, t, t + 1)), 1e-5) << "token " << t;
  }
  if (coupling == CouplingKind::none) return;
  ModelConfig none = reader.model_config();
  none.coupling = CouplingKind::none;
  EXPECT_GT(largest_difference(exact_logits(model, none, ids),
                               exact_logits(model, reader.model_config(), ids)),
            1e-11);
}

// The checkpoint as older versions wrote it under coupling_sharing layer: one dt for all heads.
void keep_one_dt(const std::string& directory) {
  Manifest manifest = read_manifest(directory);
  for (const char* name : {kModelFile, kOptimizerFile}) {
    const std::string path = concat(directory, "/", name);
    const SafetensorsFile file = SafetensorsFile::open(path);
    NamedTensors tensors;
    for (const std::string& tensor : file.names()) {
      const Tensor whole = file.load(tensor);
      const bool dt = tensor.find("coupling.dt") != std::string::npos;
      tensors.emplace_back(tensor, dt ? clone(whole.slice_view(0, 0, 1)) : whole);
    }
    std::filesystem::remove(path);
    manifest.files[name] = write_safetensors(path, tensors, file.metadata());
  }
  write_bytes(concat(directory, "/manifest.json"), to_json(manifest));
}

TEST(OldCheckpoints, ACheckpointWithOneDtALayerGivesItToEveryHead) {
  const TempDirectory dir;
  RunConfig config = run_of(dir, {CouplingKind::euler, Scoring::softmax, Family::llama, 4});
  config.model.coupling_sharing = CouplingSharing::layer;
  config.max_iters = 10;
  std::vector<double> losses;
  const std::string checkpoint = run_to_end(config, {}, losses);
  keep_one_dt(checkpoint);

  Recorder reporter;
  const CheckpointReader reader = CheckpointReader::open(checkpoint, reporter, true);
  EXPECT_NE(reporter.notices.find("model.safetensors: blocks.0.attn.coupling.dt is one dt for all "
                                  "heads of the layer"),
            std::string::npos)
      << reporter.notices;
  Transformer model(reader.model_config());
  AdamW optimizer(named_tensors(model), {});
  reader.load_weights(optimizer.tensors());
  reader.load_optimizer(optimizer);
  const SafetensorsFile weights = SafetensorsFile::open(concat(checkpoint, "/", kModelFile));
  const SafetensorsFile moments = SafetensorsFile::open(concat(checkpoint, "/", kOptimizerFile));
  int seen = 0;
  for (std::size_t i = 0; i < optimizer.tensors().size(); ++i) {
    const NamedTensor& t = optimizer.tensors()[i];
    if (!t.name.ends_with("coupling.dt")) continue;
    ++seen;
    ASSERT_EQ(t.value.shape(), Shape{4});
    for (std::int64_t head = 0; head < 4; ++head) {
      const auto of_head = [&](const Tensor& x) { return x.data<float>()[head]; };
      EXPECT_EQ(of_head(t.value), weights.load(t.name).item());
      EXPECT_EQ(of_head(optimizer.first_moment(i)), moments.load(t.name + kFirstMoment).item());
      EXPECT_EQ(of_head(optimizer.second_moment(i)), moments.load(t.name + kSecondMoment).item());
    }
  }
  EXPECT_EQ(seen, 1);

  // The run goes on, and its heads part.
  config.resume = true;
  config.max_iters = 20;
  const std::string last = run_to_end(config, {}, losses);
  const Tensor dt =
      SafetensorsFile::open(concat(last, "/", kModelFile)).load("blocks.0.attn.coupling.dt");
  EXPECT_EQ(dt.shape(), Shape{4});
  EXPECT_NE(dt.data<float>()[0], dt.data<float>()[1]);
  // Bare weights start another run in the same way.
  Recorder told;
  load_initial_weights(concat(checkpoint, "/", kModelFile), optimizer.tensors(), {}, told);
  EXPECT_NE(told.notices.find("each of the 4 heads starts from it"), std::string::npos);
}

std::string combination_name(const testing::TestParamInfo<Combination>& info) {
  const auto& [coupling, scoring, family, key_heads] = info.param;
  std::string name = std::string(enum_name(coupling)) + "_" + std::string(enum_name(scoring)) +
                     "_" + std::string(enum_name(family)) + (key_heads == 4 ? "" : "_gqa");
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Combinations, CouplingTraining,
                         testing::Combine(testing::ValuesIn(kKinds), testing::ValuesIn(kScorings),
                                          testing::Values(Family::llama, Family::gpt2),
                                          testing::Values(4, 2)),
                         combination_name);

}  // namespace
}  // namespace duet::test
