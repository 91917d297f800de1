// Where numbers stop being finite. A skipped step is run again under FirstNonFinite, which names
// the op that made the first NaN or infinity; NonFiniteTrace looks while training goes on, as the
// key trace_nonfinite says. Both only read, so that a step keeps its bits and its plan of memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "autograd/op_watch.h"
#include "train/run_config.h"
#include "train/tensor_facts.h"

namespace duet {

// How messages speak of an op and of the tensors it read.
class OpWords {
 public:
  explicit OpWords(const std::vector<NamedTensor>& weights) : weights_(weights) {}

  // What is not finite in an event, or empty. `when` follows the direction ("micro-batch 1 of 2");
  // `forward` is what the op read in its forward, for a backward event, where that is known.
  std::string non_finite(const OpEvent& event, const std::string& when,
                         const std::vector<std::string>* forward = nullptr) const;
  // "blocks.0.attn.o_proj.weight [16, 16] up to 0.4"
  std::string tensor(const Tensor& t) const;
  std::vector<std::string> all(std::span<const Tensor> tensors) const;

 private:
  std::string name(const Tensor& t) const;  // of a weight, else empty

  const std::vector<NamedTensor>& weights_;
};

// The watch of a replay. Once it has found what it looks for, it costs nothing more.
class FirstNonFinite final : public OpWatch {
 public:
  // Looks at the weights first: where they are not finite, no op is to blame.
  explicit FirstNonFinite(const std::vector<NamedTensor>& tensors);

  void begin(std::size_t micro_batch, std::size_t of);
  bool found() const { return !text_.empty(); }
  // Why the step was skipped, as a clause, when the replay is over and every hook has run.
  // `first_bad` is the tensor whose gradient the step complained about; empty: none.
  std::string reason(const std::string& first_bad) const;

  bool wants_next() override { return !found(); }
  void on_op(const OpEvent& event) override;

 private:
  const std::vector<NamedTensor>& tensors_;
  OpWords words_;
  std::string when_;
  std::string text_;
  std::map<const Node*, std::vector<std::string>> forward_;  // what each node's op read
};

// The checks of trace_nonfinite: of every op (all), or of as many in turn as fit in a hundredth of
// the time (sample). Each place is warned of once.
class NonFiniteTrace final : public OpWatch {
 public:
  using Clock = std::function<double()>;  // seconds
  explicit NonFiniteTrace(TraceNonfinite mode, Clock clock = {});

  // A step of these tensors begins. True: it wants to see the ops, by an OpWatchScope.
  bool begin_step(const std::vector<NamedTensor>& tensors);
  // After the update. What a skipped step did is told by its replay.
  void end_step(bool skipped);
  std::vector<std::string> take_warnings();

  double share() const { return elapsed_ > 0 ? spent_ / elapsed_ : 0; }  // of the steps' time

  bool wants_next() override;
  void on_op(const OpEvent& event) override;

 private:
  // Runs look() if its turn can be paid for, and counts what it took.
  void pay_for(std::size_t bytes, const std::function<void()>& look);
  void look_at_outputs(const OpEvent& event);
  void look_at_weight(const NamedTensor& t);
  void warn(const std::string& place, const std::string& text);

  TraceNonfinite mode_;
  Clock clock_;
  const std::vector<NamedTensor>* tensors_ = nullptr;  // of the step that runs
  bool found_ = false;              // in this step: what follows is its consequence
  std::int64_t at_ = 0, next_ = 0;  // the event of this step, and the one whose turn it is
  double begin_ = 0, elapsed_ = 0;  // of the step that runs; of all before
  double spent_ = 0, bytes_ = 0;    // on checks
  std::set<std::string> warned_of_;
  std::vector<std::string> warnings_;
};

}  // namespace duet
