// A step of a tiny model into which a NaN is planted, at any op, forward or backward.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "autograd/node.h"
#include "runtime/memory_ops.h"
#include "tests/models/model_helpers.h"
#include "train/data.h"
#include "train/nonfinite.h"
#include "train/trainer.h"

namespace duet::test {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Writes element `at` of a contiguous tensor, unseen by the version that saved tensors compare.
inline void plant(const Tensor& t, double value, std::int64_t at = 0) {
  Tensor one = t.as_strided({1}, {1}, t.offset() + at);
  const std::uint32_t version = t.version();
  fill(one, value);
  t.storage()->version = version;
}

// Sees every op and, at one of them, spoils what it made. Counts the ops whose results are bytes of
// their own; a replay counts on, so that the same op of the replay is spoiled, too.
class Planter : public OpWatch {
 public:
  // `period`: ops of a whole step; 0: only count.
  explicit Planter(std::int64_t at = -1, std::int64_t period = 0) : at_(at), period_(period) {}

  bool wants_next() override { return true; }
  void on_op(const OpEvent& event) override {
    for (const Tensor& t : event.outputs) {
      if (!t.defined() || !is_floating(t.dtype()) || t.numel() == 0) continue;
      bool view = false;
      for (const Tensor& in : event.inputs) {
        view = view || (in.defined() && in.storage() == t.storage());
      }
      if (view) continue;
      const std::int64_t index = count_++;
      ops_.insert(event.op);
      if (period_ > 0 && index % period_ == at_) {
        plant(t, kNaN);
        blame_ = blame(event);
      }
      return;
    }
  }

  std::int64_t count() const { return count_; }
  const std::set<std::string>& ops() const { return ops_; }
  // How the reason of the skipped step has to begin.
  const std::string& expected() const { return blame_; }

 private:
  static std::string blame(const OpEvent& event) {
    const std::string layer =
        scope_path(event.node != nullptr ? event.node->scope : current_scope());
    if (event.node != nullptr && event.node->is_leaf()) {
      return concat("the gradients of ", layer, " add up to one that is not finite (backward");
    }
    return concat(event.op, " in ", layer, " gave a ", event.backward ? "gradient" : "result",
                  " that is not finite (", event.backward ? "backward" : "forward");
  }

  std::int64_t at_, period_, count_ = 0;
  std::set<std::string> ops_;
  std::string blame_;
};

// A model of two layers, its optimizer, and batches for a step.
struct TinyStep {
  explicit TinyStep(const ModelConfig& model_config, Device where = kCpu,
                    std::int64_t micro_batches = 1)
      : model((config.model = model_config), DType::f32, where) {
    model.initialize(3);
    if (where.type == DeviceType::cpu) perturb(model, 0.2);  // every path carries a gradient
    optimizer.emplace(named_tensors(model), adamw_options(config));
    for (std::int64_t i = 0; i < micro_batches; ++i) {
      const auto seed = static_cast<std::uint64_t>(2 * i);
      const std::int64_t ids =
          model_config.valid_vocab > 0 ? model_config.valid_vocab : model_config.vocab_size;
      batches.push_back(to_device(
          Batch{make_ids(2, 6, ids, seed + 1), make_ids(2, 6, ids, seed + 2), 12}, where));
    }
  }

  StepResult run(NonFiniteTrace* trace = nullptr, const StepHooks& hooks = {}, double lr = 1e-3) {
    return train_step(model, *optimizer, config, step++, lr, batches, hooks, trace);
  }
  // The whole parameter's piece of this name.
  Tensor weight(const std::string& name) {
    for (const NamedTensor& t : optimizer->tensors()) {
      if (t.name == name) return t.value;
    }
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }

  RunConfig config;
  Transformer model;
  std::optional<AdamW> optimizer;
  std::vector<Batch> batches;
  std::int64_t step = 0;
};

// Spoils every op of a step in turn, and expects that each is blamed for its own NaN and that
// weights stay as they were. Returns the ops met.
inline std::set<std::string> expect_every_op_is_blamed(TinyStep& tiny, std::int64_t stride = 1) {
  Planter dry;
  {
    const OpWatchScope watching(dry);
    const StepResult clean = tiny.run();
    EXPECT_FALSE(clean.skipped) << clean.reason;
  }
  std::int64_t skipped = 0;
  for (std::int64_t at = 0; at < dry.count(); at += stride) {
    Planter planter(at, dry.count());
    const OpWatchScope watching(planter);
    const StepResult spoiled = tiny.run();
    if (!spoiled.skipped) continue;  // nothing that was trained depended on it
    ++skipped;
    EXPECT_EQ(spoiled.reason.rfind(planter.expected(), 0), 0U)
        << "op " << at << ": got " << spoiled.reason << "\nexpected " << planter.expected();
  }
  // Some results lead nowhere: a gradient of the rotation, say.
  EXPECT_GE(skipped * stride * 10, dry.count() * 8) << skipped << " of " << dry.count();
  EXPECT_EQ(words_of_non_finite(tiny.optimizer->tensors()), "");
  return dry.ops();
}

}  // namespace duet::test
