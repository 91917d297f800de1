#include "train/nonfinite.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "autograd/node.h"

namespace duet {
namespace {

constexpr double kShare = 0.01;  // of the time, that samples may take

bool shares_storage(const Tensor& t, std::span<const Tensor> others) {
  return std::any_of(others.begin(), others.end(),
                     [&](const Tensor& o) { return o.defined() && o.storage() == t.storage(); });
}

// Calls f(i, tensor) for every tensor of its own bytes: a view was seen when its bytes were made.
template <class F>
void for_each_made(const OpEvent& event, F&& f) {
  for (std::size_t i = 0; i < event.outputs.size(); ++i) {
    const Tensor& t = event.outputs[i];
    if (t.defined() && !shares_storage(t, event.inputs)) f(i, t);
  }
}

// A leaf's gradient arrives while another op is at work; its own scope is meant.
std::string layer_of(const OpEvent& event) {
  return scope_path(event.node != nullptr ? event.node->scope : current_scope());
}

// "linear in blocks.0.mlp"
std::string op_words(const OpEvent& event) {
  const std::string layer = layer_of(event);
  return concat(event.op, layer.empty() ? "" : " in ", layer);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text.append(text.empty() ? "" : ", ").append(part);
  return text.empty() ? "none" : text;
}

// Above it the square of a number is infinite: norms and products of alike numbers overflow.
double square_limit(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return std::sqrt(std::numeric_limits<double>::max());
    case DType::f16:
      return std::sqrt(65504.0);
    default:
      return std::sqrt(static_cast<double>(std::numeric_limits<float>::max()));
  }
}

double steady_seconds() {
  using Seconds = std::chrono::duration<double>;
  return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::size_t bytes_of(const OpEvent& event) {
  std::size_t bytes = 0;
  for_each_made(event, [&](std::size_t, const Tensor& t) { bytes += t.nbytes(); });
  if (!event.backward) return bytes;
  for (const Tensor& t : event.inputs) bytes += t.defined() ? t.nbytes() : 0;
  return bytes;
}

}  // namespace

std::string OpWords::name(const Tensor& t) const {
  std::string text;
  for (const NamedTensor& w : weights_) {
    if (w.value.storage() != t.storage()) continue;
    // Those that are multiplied at once lie side by side: "blocks.0.attn.q_proj.weight/k_proj..."
    const std::size_t module = w.name.rfind('.', w.name.rfind('.') - 1);
    text += text.empty() ? w.name : concat("/", w.name.substr(module + 1));
  }
  return text;
}

std::string OpWords::tensor(const Tensor& t) const {
  const TensorFacts facts = facts_of(t);
  const std::string weight = name(t);
  return concat(weight, weight.empty() ? "" : " ", t.shape(), " up to ",
                short_number(facts.largest),
                facts.finite() ? "" : concat(" and ", facts.bad, " not finite"));
}

std::vector<std::string> OpWords::all(std::span<const Tensor> tensors) const {
  std::vector<std::string> out;
  for (const Tensor& t : tensors) {
    if (t.defined()) out.push_back(tensor(t));
  }
  return out;
}

std::string OpWords::non_finite(const OpEvent& event, const std::string& when,
                                const std::vector<std::string>* forward) const {
  const std::string direction = concat(event.backward ? "backward" : "forward", when);
  if (event.backward) {
    for (const Tensor& t : event.inputs) {
      if (!t.defined()) continue;
      const TensorFacts facts = facts_of(t);
      if (facts.finite()) continue;
      return concat("the gradient that reaches ", op_words(event), " is not finite (", direction,
                    ": ", words_of(facts),
                    "), although the ops before it gave finite ones: their sum overflowed, or a "
                    "hook changed it");
    }
  }
  std::string text;
  for_each_made(event, [&](std::size_t i, const Tensor& t) {
    if (!text.empty()) return;
    const TensorFacts facts = facts_of(t);
    if (facts.finite()) return;
    if (event.node != nullptr && event.node->is_leaf()) {
      text = concat("the gradients of ", layer_of(event), " add up to one that is not finite (",
                    direction, ": ", words_of(facts), ")");
      return;
    }
    const std::string which = event.backward             ? concat("of input ", i, ", ")
                              : event.outputs.size() > 1 ? concat("output ", i, ", ")
                                                         : "";
    text = concat(op_words(event), " gave a ", event.backward ? "gradient" : "result",
                  " that is not finite (", direction, ": ", which, words_of(facts), "; ",
                  event.backward ? "incoming gradient: " : "inputs: ", joined(all(event.inputs)),
                  forward == nullptr ? "" : concat("; inputs in forward: ", joined(*forward)), ")");
  });
  return text;
}

FirstNonFinite::FirstNonFinite(const std::vector<NamedTensor>& tensors)
    : tensors_(tensors), words_(tensors) {
  const std::string bad = words_of_non_finite(tensors);
  if (!bad.empty()) text_ = concat("weights were not finite before the step: ", bad);
}

void FirstNonFinite::begin(std::size_t micro_batch, std::size_t of) {
  when_ = of > 1 ? concat(", micro-batch ", micro_batch + 1, " of ", of) : "";
}

void FirstNonFinite::on_op(const OpEvent& event) {
  if (event.backward) {
    const auto known = forward_.find(event.node);
    text_ = words_.non_finite(event, when_, known == forward_.end() ? nullptr : &known->second);
    if (known != forward_.end()) forward_.erase(known);
    return;
  }
  text_ = words_.non_finite(event, when_);
  if (event.node != nullptr) forward_[event.node] = words_.all(event.inputs);
}

std::string FirstNonFinite::reason(const std::string& first_bad) const {
  if (found()) return text_;
  TensorFacts named;
  for (const NamedTensor& t : tensors_) {
    const Tensor gradient = t.gradient();
    if (!gradient.defined()) continue;
    const TensorFacts facts = facts_of(gradient);
    if (!facts.finite()) {
      return concat("the gradient of ", t.name, " is not finite (", words_of(facts),
                    "), although every op gave finite ones: a hook changed it after backward");
    }
    if (t.name == first_bad) named = facts;
  }
  if (named.largest * named.largest >= square_limit(DType::f32)) {
    return concat("the gradient of ", first_bad, " is too large: its largest element is ",
                  short_number(named.largest),
                  ", and the sum of its squares does not fit the second moment");
  }
  return concat(first_bad.empty() ? "the loss" : "the gradient of " + first_bad,
                " was not finite, but when the step was run again every op gave finite numbers: "
                "the device does not repeat its results; test its memory");
}

NonFiniteTrace::NonFiniteTrace(TraceNonfinite mode, Clock clock)
    : mode_(mode), clock_(clock ? std::move(clock) : steady_seconds) {}

bool NonFiniteTrace::begin_step(const std::vector<NamedTensor>& tensors) {
  if (mode_ == TraceNonfinite::off) return false;
  tensors_ = &tensors;
  found_ = false;
  at_ = 0;
  begin_ = clock_();
  return true;
}

void NonFiniteTrace::end_step(bool skipped) {
  if (mode_ == TraceNonfinite::off) return;
  if (skipped) {
    warnings_.clear();
  } else {
    for (const NamedTensor& t : *tensors_) {
      if (wants_next()) pay_for(t.value.nbytes(), [&] { look_at_weight(t); });
    }
    if (next_ >= at_) next_ = 0;
  }
  elapsed_ += clock_() - begin_;
  tensors_ = nullptr;
}

std::vector<std::string> NonFiniteTrace::take_warnings() { return std::exchange(warnings_, {}); }

bool NonFiniteTrace::wants_next() {
  const std::int64_t event = at_++;
  return !found_ && (mode_ == TraceNonfinite::all || event == next_);
}

void NonFiniteTrace::on_op(const OpEvent& event) {
  pay_for(bytes_of(event), [&] { look_at_outputs(event); });
}

void NonFiniteTrace::pay_for(std::size_t bytes, const std::function<void()>& look) {
  constexpr double kFirstBytes = 1 << 20;  // a guess, until there is a measurement: 1 ns a byte
  const auto size = static_cast<double>(bytes);
  const double begin = clock_();
  const double expected = size * (spent_ + kFirstBytes * 1e-9) / (bytes_ + kFirstBytes);
  if (mode_ == TraceNonfinite::all || spent_ + expected <= kShare * (elapsed_ + begin - begin_)) {
    look();
    ++next_;
    bytes_ += size;
  }
  spent_ += clock_() - begin;
}

void NonFiniteTrace::look_at_outputs(const OpEvent& event) {
  const std::string place = concat(event.backward ? "backward " : "forward ", op_words(event));
  const OpWords words(*tensors_);
  const std::string bad = words.non_finite(event, "");
  found_ = !bad.empty();
  if (found_) warn("bad " + place, bad);
  for_each_made(event, [&](std::size_t, const Tensor& t) {
    if (found_ || !is_floating(t.dtype())) return;
    const double largest = facts_of(t).largest;
    if (largest < square_limit(t.dtype())) return;
    warn("large " + place,
         concat(place, " gave numbers up to ", short_number(largest), ", whose squares do not fit ",
                t.dtype(), ": what follows is about to overflow; lower learning_rate"));
  });
}

void NonFiniteTrace::look_at_weight(const NamedTensor& t) {
  const TensorFacts facts = facts_of(t.value);
  if (facts.finite()) return;
  warn("weight " + t.name, concat("the update made ", t.name, " not finite: ", words_of(facts)));
}

void NonFiniteTrace::warn(const std::string& place, const std::string& text) {
  if (warned_of_.insert(place).second) warnings_.push_back(text);
}

}  // namespace duet
