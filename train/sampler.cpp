#include "train/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/transformer.h"
#include "runtime/memory_ops.h"
#include "runtime/nan_sign.h"
#include "runtime/random.h"

namespace duet {
namespace {

// In [0, 1), 53 bits, for the index-th new token of a text.
double uniform_draw(std::uint64_t seed, std::int64_t index) {
  const RandomKey key{seed, static_cast<std::uint32_t>(index), 0, kUseSampling, 0};
  const std::uint64_t word = std::uint64_t{random_u32(key, 0)} << 32 | random_u32(key, 1);
  return static_cast<double>(word >> 11) * 0x1p-53;
}

// [1, 1, V] -> V numbers
std::vector<double> to_doubles(const Tensor& logits) {
  const Tensor here = to_device(logits, kCpu);
  const ConstView view = here.view();
  std::vector<double> out(static_cast<std::size_t>(view.size(2)));
  visit_floating(view.dtype, "generate", [&]<class T>(TypeTag<T>) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<double>(view.as<T>()[static_cast<std::int64_t>(i) * view.stride(2)]);
    }
  });
  return out;
}

Tensor ids_tensor(std::span<const std::int32_t> ids, Device device) {
  Tensor t = Tensor::empty({1, static_cast<std::int64_t>(ids.size())}, DType::i32);
  std::copy(ids.begin(), ids.end(), t.mutable_data<std::int32_t>());
  return to_device(t, device);
}

}  // namespace

void validate(const SampleOptions& o) {
  check(o.max_new_tokens >= 0, ErrorKind::usage, "max_new_tokens: got ", o.max_new_tokens,
        ", expected 0 or more");
  check(std::isfinite(o.temperature) && o.temperature >= 0, ErrorKind::usage, "temperature: got ",
        o.temperature, ", expected 0 (greedy) or a positive number");
  check(o.top_k >= 0, ErrorKind::usage, "top_k: got ", o.top_k, ", expected 0 (all) or more");
  check(o.top_p > 0 && o.top_p <= 1, ErrorKind::usage, "top_p: got ", o.top_p,
        ", expected a number above 0, at most 1");
}

std::int32_t sample_token(std::span<const double> logits, const SampleOptions& options,
                          double uniform) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    check(std::isfinite(logits[i]), ErrorKind::non_finite, "generate: the logit of id ", i, " is ",
          without_nan_sign(logits[i]), ", expected a finite number; the weights are damaged");
  }
  if (options.temperature == 0) {
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) -
                                     logits.begin());
  }
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  const bool filtered = options.top_k > 0 || options.top_p < 1;
  if (filtered) {
    std::sort(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) {
      return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
    });
    if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < ids.size()) {
      ids.resize(static_cast<std::size_t>(options.top_k));
    }
  }
  const double highest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights;
  double total = 0;
  for (const std::int32_t id : ids) {
    weights.push_back(std::exp((logit(id) - highest) / options.temperature));
    total += weights.back();
  }
  if (options.top_p < 1) {
    double kept = 0;
    std::size_t n = 0;
    while (n < weights.size() && kept < options.top_p * total) kept += weights[n++];
    weights.resize(n);
    total = kept;
  }
  double left = uniform * total;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return ids[i];
  }
  // Rounding used the last bit up: the last token that has any weight.
  std::size_t last = weights.size() - 1;
  while (last > 0 && weights[last] == 0) --last;
  return ids[last];
}

Sample generate(const Transformer& model, std::span<const std::int32_t> prompt,
                const SampleOptions& options,
                const std::function<bool(std::int32_t id)>& on_token) {
  validate(options);
  const std::int64_t context = model.config().block_size;
  const auto length = static_cast<std::int64_t>(prompt.size());
  check(length > 0, ErrorKind::usage, "prompt: it is empty; give at least one token");
  check(length <= context, ErrorKind::usage, "prompt: ", length,
        " tokens do not fit the model's context of ", context, "; shorten the prompt");
  Sample sample;
  const std::int64_t room = context - length;
  const std::int64_t wanted = std::min(options.max_new_tokens, room);
  KvCache cache = model.make_cache(1);
  std::vector<std::int32_t> input(prompt.begin(), prompt.end());
  while (static_cast<std::int64_t>(sample.tokens.size()) < wanted) {
    const Tensor logits = model.logits(ids_tensor(input, model.device()), cache, Positions::last);
    const std::int64_t index = options.drawn + static_cast<std::int64_t>(sample.tokens.size());
    const std::int32_t id =
        sample_token(to_doubles(logits), options, uniform_draw(options.seed, index));
    sample.tokens.push_back(id);
    if (on_token && !on_token(id)) return sample;
    input = {id};
  }
  sample.context_full = options.max_new_tokens > room;
  return sample;
}

}  // namespace duet
