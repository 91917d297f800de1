// The rows of attention, and its oracle: the formula in naive loops that hold one row of scores.
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/memory_ops.h"
#include "tests/ops/op_cases.h"

namespace duet::test {
namespace {

struct Mask {
  bool causal = true;
  double scale = 0;
  bool first_visible = false;
};

// The first key that query i sees: 0, 0, 1, 1, 2, ... and past all keys for every fifth query, so
// that some rows see nothing.
std::int64_t first_key(std::int64_t b, std::int64_t i, std::int64_t keys) {
  return (i + b) % 5 == 4 ? keys : (i + b) / 2 % std::max<std::int64_t>(1, keys);
}

Tensors call(const Tensors& in, const Mask& mask) {
  AttentionOptions options;
  options.causal = mask.causal;
  options.scale = mask.scale;
  if (mask.first_visible) {
    const std::int64_t batch = in[0].size(0), queries = in[0].size(1), keys = in[1].size(1);
    const Device device = in[0].device();
    const bool planned = device.type == DeviceType::meta;
    options.first_visible = Tensor::empty({batch, queries}, DType::i32, planned ? device : kCpu);
    if (!planned) {
      auto* p = options.first_visible.mutable_data<std::int32_t>();
      for (std::int64_t b = 0; b < batch; ++b) {
        for (std::int64_t i = 0; i < queries; ++i) {
          p[b * queries + i] = static_cast<std::int32_t>(first_key(b, i, keys));
        }
      }
      options.first_visible = to_device(options.first_visible, device);
    }
  }
  return {attention(in[0], in[1], in[2], options)};
}

Tensors oracle(const Tensors& in, const Mask& mask) {
  const Tensor &q = in[0], &k = in[1], &v = in[2];
  const std::int64_t batch = q.size(0), queries = q.size(1), heads = q.size(2), width = q.size(3);
  const std::int64_t keys = k.size(1), kv_heads = k.size(2), value_width = v.size(3);
  const double scale = mask.scale != 0 ? mask.scale : 1 / std::sqrt(static_cast<double>(width));
  Tensor out = Tensor::zeros({batch, queries, heads, value_width}, DType::f64);
  double* y = out.mutable_data<double>();
  const double *pq = q.data<double>(), *pk = k.data<double>(), *pv = v.data<double>();
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t g = h * kv_heads / heads;
      for (std::int64_t i = 0; i < queries; ++i) {
        const std::int64_t q_row = (b * queries + i) * heads + h;
        std::vector<double> scores(static_cast<std::size_t>(keys));
        std::vector<bool> sees(scores.size(), false);
        double max = -std::numeric_limits<double>::infinity(), sum = 0;
        for (std::int64_t j = 0; j < keys; ++j) {
          double& s = scores[static_cast<std::size_t>(j)];
          s = -std::numeric_limits<double>::infinity();
          if (mask.causal && j > i + keys - queries) continue;
          if (mask.first_visible && j < first_key(b, i, keys)) continue;
          double product = 0;
          for (std::int64_t c = 0; c < width; ++c) {
            product += pq[q_row * width + c] * pk[((b * keys + j) * kv_heads + g) * width + c];
          }
          s = scale * product;
          sees[static_cast<std::size_t>(j)] = true;
          max = std::max(max, s);
        }
        if (std::find(sees.begin(), sees.end(), true) == sees.end()) continue;  // zeros
        for (std::size_t j = 0; j < scores.size(); ++j) {
          if (sees[j]) sum += scores[j] = std::exp(scores[j] - max);
        }
        for (std::int64_t j = 0; j < keys; ++j) {
          if (!sees[static_cast<std::size_t>(j)]) continue;
          const double p = scores[static_cast<std::size_t>(j)] / sum;
          for (std::int64_t c = 0; c < value_width; ++c) {
            y[q_row * value_width + c] += p * pv[((b * keys + j) * kv_heads + g) * value_width + c];
          }
        }
      }
    }
  }
  return {out};
}

OpCase row(const std::string& name, const Shape& q, const Shape& k, std::int64_t value_width,
           const Mask& mask = {}, const std::string& golden = "") {
  OpCase c;
  c.name = name;
  Shape v = k;
  v[3] = value_width;
  c.inputs = {q, k, v};
  c.call = [mask](const Tensors& in) { return call(in, mask); };
  c.oracle = [mask](const Tensors& in) { return oracle(in, mask); };
  // q, k, v, the output, a number per row; 4 bytes each
  c.saved_bytes = 4 * (q.numel() + k.numel() + v.numel() + q[0] * q[1] * q[2] * (value_width + 1));
  if (mask.first_visible) c.saved_bytes += 4 * q[0] * q[1];
  c.empty_ok = true;
  // In f32 a NaN in v also reaches those queries of its tile that do not see its key (0 times NaN);
  // attention_test.cpp has what q and k do.
  c.specials = Specials::none;
  c.bench = {{1, 512, 8, 64}, {1, 512, 8, 64}, {1, 512, 8, 64}};
  c.bench_flops = 2.0 * 512 * 512 * 8 * 64;  // two products, one half of each
  c.golden = golden;
  return c;
}

}  // namespace

std::vector<OpCase> attention_cases() {
  const Mask full{false, 0, false}, first{true, 0, true}, first_full{false, 0, true};
  return {
      row("attention", {2, 5, 2, 4}, {2, 5, 2, 4}, 4, {}, "attention"),
      row("attention_gqa", {2, 5, 4, 4}, {2, 5, 2, 4}, 4, {}, "attention_gqa"),
      row("attention_dv", {2, 5, 2, 4}, {2, 5, 2, 4}, 6, {}, "attention_dv"),
      row("attention_full", {2, 5, 2, 4}, {2, 6, 1, 4}, 3, full),
      row("attention_scale", {1, 6, 2, 3}, {1, 6, 2, 3}, 3, {true, 0.9, false}),
      row("attention_more_keys", {2, 3, 2, 4}, {2, 7, 1, 4}, 5),
      row("attention_more_queries", {1, 7, 2, 4}, {1, 3, 2, 4}, 2),
      row("attention_first_visible", {2, 9, 2, 4}, {2, 9, 1, 4}, 4, first),
      row("attention_first_visible_full", {2, 7, 2, 4}, {2, 4, 2, 4}, 4, first_full),
      // Several tiles, none of them whole.
      row("attention_tiles", {1, 150, 2, 20}, {1, 150, 2, 20}, 20),
      row("attention_tiles_gqa", {1, 70, 4, 33}, {1, 139, 2, 33}, 17),
      row("attention_tiles_full", {1, 67, 1, 8}, {1, 131, 1, 8}, 9, full),
      row("attention_tiles_first", {1, 131, 2, 6}, {1, 131, 1, 6}, 6, first),
      row("attention_tiles_more_queries", {1, 140, 1, 5}, {1, 72, 1, 5}, 40),
      // Wider heads, and values wider than keys: other tiles on a GPU.
      row("attention_wide", {1, 21, 2, 72}, {1, 37, 1, 72}, 72),
      row("attention_wide_values", {1, 20, 2, 36}, {1, 20, 2, 36}, 80),
      row("attention_widest", {1, 12, 1, 140}, {1, 12, 1, 140}, 132),
      row("attention_decode", {2, 1, 4, 10}, {2, 75, 2, 10}, 12),
      row("attention_decode_two", {1, 2, 2, 32}, {1, 129, 1, 32}, 40, first),
  };
}

}  // namespace duet::test
