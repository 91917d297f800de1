// cross_entropy and linear_cross_entropy where losses go wrong: ignored and invalid targets, huge
// logits, one class, padded classes, memory.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "autograd/node.h"
#include "ops/ops.h"
#include "runtime/memory_ops.h"
#include "runtime/random.h"

namespace duet {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor ids(const std::vector<std::int64_t>& values) {
  Tensor t = Tensor::empty({static_cast<std::int64_t>(values.size())}, DType::i64);
  std::copy(values.begin(), values.end(), t.mutable_data<std::int64_t>());
  return t;
}

Tensor matrix(const std::vector<std::vector<double>>& rows, DType dtype) {
  const auto columns = static_cast<std::int64_t>(rows[0].size());
  Tensor t = Tensor::empty({static_cast<std::int64_t>(rows.size()), columns}, DType::f64);
  double* p = t.mutable_data<double>();
  for (const auto& row : rows) p = std::copy(row.begin(), row.end(), p);
  Tensor out = Tensor::empty(t.shape(), dtype);
  copy(out, t);
  return out;
}

Tensor random(const Shape& shape, DType dtype, std::uint32_t stream, double range = 1) {
  Tensor t = Tensor::empty(shape, dtype);
  RandomKey key;
  key.layer = stream;
  key.use = kUseTest;
  fill_uniform(t, key, -range, range);
  return t;
}

std::vector<double> values(const Tensor& t) {
  Tensor x = Tensor::empty(t.shape(), DType::f64);
  copy(x, t);
  return {x.data<double>(), x.data<double>() + x.numel()};
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return (e.kind() == ErrorKind::index ? "index: " : "other: ") + std::string(e.what());
  }
  return "no error";
}

class CrossEntropy : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CrossEntropy, testing::Values(DType::f32, DType::f64),
                         [](const auto& row) { return std::string(name(row.param)); });

// Everywhere else: NaN, from 0 / 0.
TEST_P(CrossEntropy, AllIgnoredGivesZeroAndZeroGradient) {
  Tensor logits = random({3, 5}, GetParam(), 1);
  Tensor x = random({3, 4}, GetParam(), 2), w = random({5, 4}, GetParam(), 3);
  for (Tensor* t : {&logits, &x, &w}) set_requires_grad(*t);
  const Tensor none = ids({-100, -100, -100});
  for (const Tensor& loss : {cross_entropy(logits, none), linear_cross_entropy(x, w, none)}) {
    EXPECT_EQ(loss.item(), 0.0);
    backward(loss);
  }
  for (const Tensor* t : {&logits, &x, &w}) {
    for (const double g : values(grad(*t))) EXPECT_EQ(g, 0.0);
  }
}

TEST_P(CrossEntropy, IgnoredRowsDoNotCount) {
  Tensor logits = random({3, 5}, GetParam(), 1);
  set_requires_grad(logits);
  const Tensor loss = cross_entropy(logits, ids({2, -100, 4}));
  backward(loss);
  const std::vector<double> g = values(grad(logits));
  for (std::size_t v = 5; v < 10; ++v) EXPECT_EQ(g[v], 0.0);
  const double first = cross_entropy(logits.slice_view(0, 0, 1), ids({2})).item();
  const double last = cross_entropy(logits.slice_view(0, 2, 3), ids({4})).item();
  EXPECT_NEAR(loss.item(), (first + last) / 2, 1e-6);
}

TEST_P(CrossEntropy, HugeLogitsStayFinite) {
  const std::vector<std::vector<double>> rows{{1e4, 1e4}, {-1e4, -1e4}, {3e38, 0}};
  const std::vector<double> expected{std::log(2.0), std::log(2.0), 0};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Tensor logits = matrix({rows[i]}, GetParam());
    set_requires_grad(logits);
    const Tensor loss = cross_entropy(logits, ids({0}));
    EXPECT_NEAR(loss.item(), expected[i], 1e-7) << "row " << i;
    backward(loss);
    const double p = i == 2 ? 1 : 0.5;
    EXPECT_NEAR(values(grad(logits))[0], p - 1, 1e-7);
    EXPECT_NEAR(values(grad(logits))[1], 1 - p, 1e-7);
  }
  // The same through a product: x W^T = {1e4, 1e4}.
  Tensor x = matrix({{1e2}}, GetParam()), w = matrix({{1e2}, {1e2}}, GetParam());
  EXPECT_NEAR(linear_cross_entropy(x, w, ids({1})).item(), std::log(2.0), 1e-7);
}

TEST_P(CrossEntropy, MaskedLogitsHaveNoShareAndNanIsNotHidden) {
  for (const std::int64_t width : {3, 40}) {
    std::vector<double> row(static_cast<std::size_t>(width), -kInf);
    row[0] = row[1] = 1;
    Tensor logits = matrix({row}, GetParam());
    set_requires_grad(logits);
    const Tensor loss = cross_entropy(logits, ids({1}));
    EXPECT_NEAR(loss.item(), std::log(2.0), 1e-7);
    backward(loss);
    EXPECT_EQ(values(grad(logits))[2], 0.0);
    for (const double bad : {std::nan(""), kInf}) {
      for (const std::size_t at : {std::size_t{2}, row.size() - 1}) {
        std::vector<double> spoiled = row;
        spoiled[at] = bad;
        EXPECT_TRUE(std::isnan(cross_entropy(matrix({spoiled}, GetParam()), ids({1})).item()));
      }
    }
  }
}

TEST_P(CrossEntropy, OneClass) {
  Tensor logits = random({4, 1}, GetParam(), 1, 50);
  Tensor x = random({4, 3}, GetParam(), 2), w = random({1, 3}, GetParam(), 3);
  for (Tensor* t : {&logits, &x, &w}) set_requires_grad(*t);
  const Tensor zeros = ids({0, 0, 0, 0});
  for (const Tensor& loss : {cross_entropy(logits, zeros), linear_cross_entropy(x, w, zeros)}) {
    EXPECT_EQ(loss.item(), 0.0);
    backward(loss);
  }
  for (const Tensor* t : {&logits, &x, &w}) {
    for (const double g : values(grad(*t))) EXPECT_EQ(g, 0.0);
  }
}

// Micro-batches of 2 and 3 counted tokens, divided by 5, are one batch of 5: not a mean of means.
TEST_P(CrossEntropy, NormalizerJoinsMicroBatches) {
  const Tensor logits = random({6, 7}, GetParam(), 1);
  CrossEntropyOptions five;
  five.normalizer = 5;
  const double whole = cross_entropy(logits, ids({1, -100, 2, 3, 4, 5})).item();
  const double parts = cross_entropy(logits.slice_view(0, 0, 3), ids({1, -100, 2}), five).item() +
                       cross_entropy(logits.slice_view(0, 3, 6), ids({3, 4, 5}), five).item();
  EXPECT_NEAR(whole, parts, 1e-6);
}

TEST_P(CrossEntropy, LargeVocabularyAgainstDouble) {
  // 50,257 is no multiple of a vector; 262,144 sums many small terms.
  for (const std::int64_t vocab : {50257, 262144}) {
    Tensor logits = random({3, vocab}, GetParam(), 1, 6);
    set_requires_grad(logits);
    const std::vector<std::int64_t> targets{0, vocab - 1, vocab / 2};
    const Tensor loss = cross_entropy(logits, ids(targets));
    backward(loss);
    const std::vector<double> x = values(logits), g = values(grad(logits));
    double expected = 0;
    for (std::size_t n = 0; n < 3; ++n) {
      const double* row = x.data() + static_cast<std::int64_t>(n) * vocab;
      double sum = 0;
      for (std::int64_t v = 0; v < vocab; ++v) sum += std::exp(row[v]);
      expected += (std::log(sum) - row[targets[n]]) / 3;
      for (std::int64_t v = 0; v < vocab; ++v) {
        const double want = (std::exp(row[v]) / sum - (v == targets[n] ? 1 : 0)) / 3;
        ASSERT_NEAR(g[n * static_cast<std::size_t>(vocab) + static_cast<std::size_t>(v)], want,
                    1e-6 * std::abs(want) + 1e-9)
            << vocab << ' ' << n << ' ' << v;
      }
    }
    EXPECT_NEAR(loss.item(), expected, 1e-6 * expected);
  }
}

TEST_P(CrossEntropy, LinearEqualsTheTwoOps) {
  const std::int64_t rows = 150, width = 16, vocab = 3000;
  const std::vector<double> picks = values(random({rows}, DType::f64, 9, 0.5));
  std::vector<std::int64_t> targets;
  for (const double p : picks) targets.push_back(static_cast<std::int64_t>((p + 0.5) * 2990));
  targets[40] = -100;
  Tensor x = random({rows, width}, GetParam(), 2), w = random({vocab, width}, GetParam(), 3);
  set_requires_grad(x);
  set_requires_grad(w);
  const Tensor composed = cross_entropy(linear(x, w), ids(targets));
  backward(composed, Tensor::full({}, 3.0, GetParam()));
  const std::vector<double> dx = values(grad(x)), dw = values(grad(w));
  set_grad(x, {});
  set_grad(w, {});
  const Tensor fused = linear_cross_entropy(x, w, ids(targets));
  EXPECT_NEAR(fused.item(), composed.item(), 1e-6 * composed.item());
  backward(fused, Tensor::full({}, 3.0, GetParam()));
  const auto expect_near = [](const std::vector<double>& got, const std::vector<double>& want) {
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 1e-5 * std::abs(want[i]) + 1e-7) << i;
    }
  };
  expect_near(values(grad(x)), dx);
  expect_near(values(grad(w)), dw);
  // Again, into the leaf's buffer, and without a graph the same loss.
  const void* buffer = grad(w).storage().get();
  backward(linear_cross_entropy(x, w, ids(targets)), Tensor::full({}, 3.0, GetParam()));
  EXPECT_EQ(grad(w).storage().get(), buffer);
  std::vector<double> twice = dw;
  for (double& v : twice) v *= 2;
  expect_near(values(grad(w)), twice);
  const NoGradGuard no_grad;
  EXPECT_EQ(linear_cross_entropy(x, w, ids(targets)).item(), fused.item());
}

TEST_P(CrossEntropy, PaddedClassesTakeNoPart) {
  const Tensor x = random({4, 3}, GetParam(), 1), targets = ids({0, 1, 2, 1});
  Tensor real = random({3, 3}, GetParam(), 2);
  Tensor padded = Tensor::full({8, 3}, 1e3, GetParam());
  Tensor head = padded.slice_view(0, 0, 3);
  copy(head, real);
  set_requires_grad(real);
  set_requires_grad(padded);
  LinearCrossEntropyOptions options;
  options.valid_vocab = 3;
  const Tensor a = linear_cross_entropy(x, real, targets);
  const Tensor b = linear_cross_entropy(x, padded, targets, options);
  EXPECT_EQ(a.item(), b.item());
  backward(a);
  backward(b);
  std::vector<double> expected = values(grad(real));
  expected.resize(24, 0.0);
  EXPECT_EQ(values(grad(padded)), expected);
  EXPECT_EQ(error_of([&] {
              linear_cross_entropy(x, padded, ids({0, 1, 3, 1}), options);
            }),
            "index: linear_cross_entropy: targets[2]=3 is outside [0, 3)");
}

TEST(CrossEntropyErrors, NamePositionAndValue) {
  std::vector<std::int64_t> targets(20, 1);
  targets[17] = 50304;
  EXPECT_EQ(error_of([&] {
              cross_entropy(Tensor::zeros({20, 50257}, DType::f32), ids(targets));
            }),
            "index: cross_entropy: targets[17]=50304 is outside [0, 50257)");
  const Tensor x = Tensor::zeros({2, 4}, DType::f32), w = Tensor::zeros({3, 4}, DType::f32);
  EXPECT_EQ(error_of([&] {
              linear_cross_entropy(x, w, ids({0, -1}));
            }),
            "index: linear_cross_entropy: targets[1]=-1 is outside [0, 3)");
  EXPECT_EQ(error_of([&] {
              cross_entropy(x, ids({0, 1, 2}));
            }),
            "other: cross_entropy: targets are [3], expected [2] for an input of [2, 4]");
  EXPECT_EQ(error_of([&] {
              linear_cross_entropy(x, Tensor::zeros({3, 5}, DType::f32), ids({0, 1}));
            }),
            "other: linear_cross_entropy: inner dimensions differ: x is [2, 4], weight is [3, 5] "
            "(the last size of both must be equal)");
  EXPECT_EQ(error_of([&] { cross_entropy(x, Tensor::zeros({2}, DType::f32)); }),
            "other: cross_entropy: targets are f32, expected i32 or i64");
}

// [rows, V] logits must never exist: at V = 128k they would be most of a training step.
TEST(CrossEntropyMemory, PeakIsFarBelowTheLogits) {
  const std::int64_t rows = 2048, vocab = 128 * 1024, width = 8;
  for (const Device device : {kMeta, kCpu}) {
    const std::int64_t n = device == kMeta ? rows : 160;  // the same plan, less to compute
    Tensor x = Tensor::zeros({n, width}, DType::f32, device);
    Tensor w = Tensor::zeros({vocab, width}, DType::f32, device);
    set_requires_grad(x);
    set_requires_grad(w);
    const Tensor targets = Tensor::zeros({n}, DType::i64, device);
    Allocator& memory = allocator(device);
    memory.reset_peak();
    const std::size_t before = memory.stats().allocated;
    backward(linear_cross_entropy(x, w, targets));
    const std::size_t peak = memory.stats().peak_allocated - before;
    const std::size_t logits = static_cast<std::size_t>(n * vocab) * sizeof(float);
    const std::size_t gradients = x.nbytes() + w.nbytes();
    EXPECT_LT(peak - gradients, logits / (device == kMeta ? 10 : 4)) << device;
  }
}

}  // namespace
}  // namespace duet
