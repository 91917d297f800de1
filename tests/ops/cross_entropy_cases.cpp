// Rows of cross_entropy and linear_cross_entropy.
#include <algorithm>
#include <cmath>

#include "runtime/memory_ops.h"
#include "tests/ops/op_case.h"

namespace duet::test {
namespace {

using Losses = LinearCrossEntropyOptions;

std::int64_t target_of(std::int64_t row, std::int64_t vocab, std::int64_t ignore_index) {
  return row == 1 ? ignore_index : (row * 7 + 3) % vocab;
}

// One target per row of `input`; row 1 does not count.
Tensor targets_for(const Tensor& input, std::int64_t vocab, const Losses& options, DType dtype) {
  Shape shape;
  for (int d = 0; d + 1 < input.ndim(); ++d) shape.push_back(input.shape()[d]);
  const Device device = input.device();
  if (device.type == DeviceType::meta) return Tensor::empty(shape, dtype, device);
  Tensor t = Tensor::empty(shape, dtype);
  for (std::int64_t n = 0; n < t.numel(); ++n) {
    const std::int64_t target = target_of(n, vocab, options.ignore_index);
    if (dtype == DType::i32) {
      t.mutable_data<std::int32_t>()[n] = static_cast<std::int32_t>(target);
    } else {
      t.mutable_data<std::int64_t>()[n] = target;
    }
  }
  return to_device(t, input.device());
}

// logits[n * stride + v], v < vocab
Tensors loss_of(const double* logits, std::int64_t rows, std::int64_t vocab,
                const Losses& options) {
  double total = 0, counted = 0;
  for (std::int64_t n = 0; n < rows; ++n) {
    const std::int64_t target = target_of(n, vocab, options.ignore_index);
    if (target == options.ignore_index) continue;
    const double* row = logits + n * vocab;
    const double largest = *std::max_element(row, row + vocab);
    double sum = 0;
    for (std::int64_t v = 0; v < vocab; ++v) sum += std::exp(row[v] - largest);
    total += std::log(sum) + largest - row[target];
    counted += 1;
  }
  const double normalizer = options.normalizer > 0 ? options.normalizer : counted;
  return {Tensor::full({}, normalizer > 0 ? total / normalizer : 0, DType::f64)};
}

OpCase cross_entropy_row(const std::string& name, const Shape& logits, const Losses& options,
                         DType ids) {
  OpCase row;
  row.name = name;
  row.inputs = {logits};
  row.call = [options, ids](const Tensors& in) {
    const Tensor targets = targets_for(in[0], in[0].size(-1), options, ids);
    return Tensors{cross_entropy(in[0], targets, options)};
  };
  row.oracle = [options](const Tensors& in) {
    const std::int64_t vocab = in[0].size(-1);
    return loss_of(in[0].data<double>(), in[0].numel() / vocab, vocab, options);
  };
  row.rtol = row.atol = 1e-6;
  row.grad_rtol = 1e-6;
  row.grad_atol = 1e-7;
  const std::int64_t rows = logits.numel() / logits.back();
  row.saved_bytes = logits.numel() * 4 + rows * 16 + rows * static_cast<std::int64_t>(size_of(ids));
  row.empty_ok = logits.ndim() > 1;
  row.bench = {{512, 4096}};
  return row;
}

OpCase linear_cross_entropy_row(const std::string& name, const Shape& x, std::int64_t vocab,
                                const Losses& options, DType ids) {
  OpCase row;
  row.name = name;
  row.inputs = {x, {vocab, x.back()}};
  const auto valid_of = [options](const Tensor& weight) {
    return options.valid_vocab > 0 ? options.valid_vocab : weight.size(0);
  };
  row.call = [options, ids, valid_of](const Tensors& in) {
    const Tensor targets = targets_for(in[0], valid_of(in[1]), options, ids);
    return Tensors{linear_cross_entropy(in[0], in[1], targets, options)};
  };
  row.oracle = [options, valid_of](const Tensors& in) {
    const std::int64_t width = in[1].size(1), rows = in[0].numel() / width;
    const std::int64_t classes = valid_of(in[1]);
    std::vector<double> logits(static_cast<std::size_t>(rows * classes));
    for (std::int64_t i = 0; i < rows * classes; ++i) {
      const double* px = in[0].data<double>() + i / classes * width;
      const double* pw = in[1].data<double>() + i % classes * width;
      for (std::int64_t c = 0; c < width; ++c) logits[static_cast<std::size_t>(i)] += px[c] * pw[c];
    }
    return loss_of(logits.data(), rows, classes, options);
  };
  row.saved_bytes = (x.numel() + vocab * x.back()) * 4;  // dx, dweight
  row.specials = Specials::nan;
  row.empty_ok = x.ndim() > 1;
  row.bench = {{256, 256}, {4096, 256}};
  row.bench_flops = 2.0 * 256 * 256 * 4096;
  return row;
}

Losses options(std::int64_t ignore_index, double normalizer, std::int64_t valid_vocab) {
  Losses o;
  o.ignore_index = ignore_index;
  o.normalizer = normalizer;
  o.valid_vocab = valid_vocab;
  return o;
}

}  // namespace

std::vector<OpCase> cross_entropy_cases() {
  OpCase plain = cross_entropy_row("cross_entropy", {6, 9}, {}, DType::i64);
  plain.golden = "cross_entropy";
  return {plain,
          cross_entropy_row("cross_entropy_options", {2, 3, 37}, options(5, 4.5, 0), DType::i32),
          cross_entropy_row("cross_entropy_1d", {9}, {}, DType::i64)};
}

std::vector<OpCase> linear_cross_entropy_cases() {
  OpCase plain = linear_cross_entropy_row("linear_cross_entropy", {6, 8}, 9, {}, DType::i64);
  plain.golden = "linear_cross_entropy";
  return {plain,
          linear_cross_entropy_row("linear_cross_entropy_padded", {2, 3, 4}, 13,
                                   options(-1, 4.5, 11), DType::i32),
          // More rows than one chunk holds.
          linear_cross_entropy_row("linear_cross_entropy_chunks", {75, 3}, 7, {}, DType::i64)};
}

}  // namespace duet::test
