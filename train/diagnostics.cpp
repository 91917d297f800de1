#include "train/diagnostics.h"

#include <algorithm>
#include <cmath>

#include "models/transformer.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/singular_values.h"
#include "runtime/memory_ops.h"
#include "runtime/stop.h"

namespace duet {
namespace {

using Doubles = std::vector<double>;

Doubles as_doubles(const Tensor& t) {
  const Tensor whole = contiguous_copy(to_device(t, kCpu));
  Doubles out(static_cast<std::size_t>(t.numel()));
  visit_floating(t.dtype(), "diagnostics", [&]<class T>(TypeTag<T>) {
    const T* data = whole.data<T>();
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(data[i]);
  });
  return out;
}

// Queries and keys of one sequence as the layer scored them, [T, H, D].
struct Pair {
  Doubles q, k, lambda;
  std::int64_t tokens, q_heads, k_heads, width;

  explicit Pair(const AttentionCapture& c)
      : q(as_doubles(c.q)),
        k(as_doubles(c.k)),
        lambda(c.lambda.defined() ? as_doubles(c.lambda) : Doubles{}),
        tokens(c.q.size(1)),
        q_heads(c.q.size(2)),
        k_heads(c.k.size(2)),
        width(c.q.size(3)) {}

  // lambda of head `head` at token i
  double lambda_at(std::int64_t i, std::int64_t head, std::int64_t heads) const {
    return lambda.size() == 1 ? lambda[0] : lambda[static_cast<std::size_t>(i * heads + head)];
  }
};

// softmax(q k^T / sqrt(D)), causal, of one query head: [T, T]
Doubles map_of(const Pair& p, std::int64_t head) {
  const std::int64_t n = p.tokens, k_head = head / (p.q_heads / p.k_heads);
  const double scale = 1 / std::sqrt(static_cast<double>(p.width));
  Doubles map(static_cast<std::size_t>(n * n), 0.0);
  for (std::int64_t i = 0; i < n; ++i) {
    double* row = map.data() + i * n;
    const double* q = p.q.data() + (i * p.q_heads + head) * p.width;
    for (std::int64_t j = 0; j <= i; ++j) {
      const double* k = p.k.data() + (j * p.k_heads + k_head) * p.width;
      for (std::int64_t c = 0; c < p.width; ++c) row[j] += scale * q[c] * k[c];
    }
    const double max = *std::max_element(row, row + i + 1);
    double sum = 0;
    for (std::int64_t j = 0; j <= i; ++j) sum += row[j] = std::exp(row[j] - max);
    for (std::int64_t j = 0; j <= i; ++j) row[j] /= sum;
  }
  return map;
}

// One head of one layer.
struct HeadMeasures {
  Spectrum spectrum;
  RowMeans first, second;
};

HeadMeasures measure(const Pair& p, Scoring scoring, std::int64_t head, std::int64_t heads) {
  HeadMeasures out;
  // As models/scoring.h pairs them.
  const bool v2 = scoring == Scoring::diff_v2;
  Doubles map = map_of(p, v2 ? 2 * head : head);
  out.first = rows_of(map.data(), p.tokens);
  if (scoring != Scoring::softmax) {
    const Doubles other = map_of(p, v2 ? 2 * head + 1 : heads + head);
    out.second = rows_of(other.data(), p.tokens);
    for (std::int64_t i = 0; i < p.tokens; ++i) {
      const double l = p.lambda_at(i, head, heads);
      for (std::int64_t j = 0; j <= i; ++j) {
        const auto at = static_cast<std::size_t>(i * p.tokens + j);
        map[at] -= l * other[at];
      }
    }
  }
  out.spectrum = spectrum_of(map.data(), p.tokens);
  return out;
}

void add_mean(HeadTable& table, std::size_t layer, std::size_t head, double value, double weight) {
  if (table.size() <= layer) table.resize(layer + 1);
  if (table[layer].size() <= head) table[layer].resize(head + 1, 0.0);
  table[layer][head] += weight * value;
}

void add_mean(std::vector<double>& list, std::size_t layer, double value, double weight) {
  if (list.size() <= layer) list.resize(layer + 1, 0.0);
  list[layer] += weight * value;
}

// Mean of lambda over the tokens of one captured sequence.
void add_lambdas(HeadTable& table, std::size_t layer, const Tensor& lambda, double weight) {
  if (!lambda.defined()) return;
  const Doubles values = as_doubles(lambda);
  const std::size_t heads = lambda.ndim() == 0 ? 1 : static_cast<std::size_t>(lambda.size(2));
  const std::size_t tokens = values.size() / heads;
  const double share = weight / static_cast<double>(tokens);
  for (std::size_t i = 0; i < values.size(); ++i) {
    add_mean(table, layer, i % heads, values[i], share);
  }
}

// f(capture, 1 / S) for each sequence, until one says no.
template <class F>
bool for_sequences(const Transformer& model, const Tensor& ids, F&& f) {
  const double weight = 1 / static_cast<double>(ids.size(0));
  for (std::int64_t s = 0; s < ids.size(0); ++s) {
    const Tensor sequence = to_device(ids.slice_view(0, s, s + 1), model.device());
    if (!f(model.capture(sequence), weight)) return false;
  }
  return true;
}

}  // namespace

Diagnostics diagnose(const Transformer& model, const Tensor& ids) {
  return *diagnose(model, ids, [](double) { return true; });
}

std::optional<Diagnostics> diagnose(const Transformer& model, const Tensor& ids,
                                    const std::function<bool(double)>& go_on) {
  const Scoring scoring = model.config().scoring;
  const std::int64_t heads =
      scoring == Scoring::diff ? model.config().n_head / 2 : model.config().n_head;
  const bool two = scoring != Scoring::softmax;
  Diagnostics d;
  std::int64_t done = 0;
  const bool whole = for_sequences(model, ids, [&](const ForwardCapture& captured, double weight) {
    for (std::size_t layer = 0; layer < captured.attention.size(); ++layer) {
      check_stop();
      const Pair pair(captured.attention[layer]);
      std::vector<HeadMeasures> measures(static_cast<std::size_t>(heads));
      parallel_chunks(heads, [&](std::int64_t h) {
        measures[static_cast<std::size_t>(h)] = measure(pair, scoring, h, heads);
      });
      for (std::size_t h = 0; h < measures.size(); ++h) {
        const HeadMeasures& m = measures[h];
        add_mean(d.effective_rank, layer, h, m.spectrum.effective_rank, weight);
        add_mean(d.gap, layer, h, m.spectrum.gap, weight);
        add_mean(d.gap_ratio, layer, h, m.spectrum.gap_ratio, weight);
        add_mean(d.entropy, layer, h, m.first.entropy, weight);
        add_mean(d.entropy_norm, layer, h, m.first.entropy_norm, weight);
        add_mean(d.sink, layer, h, m.first.sink, weight);
        if (!two) continue;
        add_mean(d.entropy_2, layer, h, m.second.entropy, weight);
        add_mean(d.entropy_norm_2, layer, h, m.second.entropy_norm, weight);
        add_mean(d.sink_2, layer, h, m.second.sink, weight);
      }
      add_lambdas(d.lambda, layer, captured.attention[layer].lambda, weight);
      const Tensor& x = captured.residual[layer];
      const Spread spread = spread_of(as_doubles(x).data(), x.size(1), x.size(2));
      add_mean(d.collapse, layer, spread.collapse, weight);
      add_mean(d.cosine, layer, spread.cosine, weight);
      const auto all = static_cast<std::int64_t>(captured.attention.size()) * ids.size(0);
      if (!go_on(static_cast<double>(++done) / static_cast<double>(all))) return false;
    }
    return true;
  });
  return whole ? std::optional(std::move(d)) : std::nullopt;
}

HeadTable diff_lambdas(const Transformer& model, const Tensor& ids) {
  HeadTable table;
  if (model.config().scoring == Scoring::softmax) return table;
  for_sequences(model, ids, [&](const ForwardCapture& captured, double weight) {
    for (std::size_t layer = 0; layer < captured.attention.size(); ++layer) {
      add_lambdas(table, layer, captured.attention[layer].lambda, weight);
    }
    return true;
  });
  return table;
}

Tensor sample_sequences(const TokenSource& part, std::int64_t block, std::int64_t sequences) {
  const std::int64_t n = part.size();
  const std::int64_t length = std::min(block, n);
  const std::int64_t count = std::clamp<std::int64_t>(sequences, 1, n - length + 1);
  Tensor ids = Tensor::empty({count, length}, DType::i32);
  auto* const out = ids.mutable_data<std::int32_t>();
  for (std::int64_t s = 0; s < count; ++s) {
    const std::int64_t begin = s * (n - length) / std::max<std::int64_t>(1, count - 1);
    part.read(begin, {out + s * length, static_cast<std::size_t>(length)});
  }
  return ids;
}

Spectrum spectrum_of(const double* map, std::int64_t size) {
  const Doubles sigma = singular_values(map, size, size);
  double sum = 0;
  for (const double s : sigma) sum += s;
  Spectrum out;
  if (sum == 0) return out;
  double entropy = 0;
  for (const double s : sigma) {
    const double p = s / sum;
    if (p != 0) entropy -= p * std::log(p);
  }
  const double second = sigma.size() > 1 ? sigma[1] : 0;
  out.effective_rank = std::exp(entropy);
  out.gap = sigma[0] - second;
  out.gap_ratio = second / sigma[0];
  return out;
}

RowMeans rows_of(const double* map, std::int64_t size) {
  RowMeans out;
  for (std::int64_t i = 0; i < size; ++i) {
    const double* row = map + i * size;
    double entropy = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      if (row[j] != 0) entropy -= row[j] * std::log(row[j]);
    }
    out.entropy += entropy;
    if (i > 0) out.entropy_norm += entropy / std::log(static_cast<double>(i + 1));
    out.sink += row[0];
  }
  out.entropy /= static_cast<double>(size);
  out.sink /= static_cast<double>(size);
  out.entropy_norm /= static_cast<double>(std::max<std::int64_t>(1, size - 1));
  return out;
}

Spread spread_of(const double* x, std::int64_t tokens, std::int64_t width) {
  Doubles mean(static_cast<std::size_t>(width), 0.0), unit_sum = mean;
  double squares = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const double* row = x + t * width;
    double norm2 = 0;
    for (std::int64_t c = 0; c < width; ++c) norm2 += row[c] * row[c];
    squares += norm2;
    const double norm = std::sqrt(norm2);
    for (std::int64_t c = 0; c < width; ++c) {
      mean[static_cast<std::size_t>(c)] += row[c] / static_cast<double>(tokens);
      if (norm > 0) unit_sum[static_cast<std::size_t>(c)] += row[c] / norm;
    }
  }
  double rest = 0, dots = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t c = 0; c < width; ++c) {
      const double r = x[t * width + c] - mean[static_cast<std::size_t>(c)];
      rest += r * r;
    }
  }
  for (const double u : unit_sum) dots += u * u;
  const auto n = static_cast<double>(tokens);
  Spread out;
  if (squares > 0) out.collapse = std::sqrt(rest / squares);
  // |sum of units|^2 = tokens + the cosines of all ordered pairs
  if (tokens > 1) out.cosine = (dots - n) / (n * (n - 1));
  return out;
}

}  // namespace duet
