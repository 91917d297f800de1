// AdamW against its written formula and a double trajectory; norms and clipping.
#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/cpu/parallel.h"
#include "runtime/random.h"
#include "tests/runtime/errors.h"
#include "tests/train/train_support.h"

namespace duet::test {
namespace {

std::vector<double> normals(std::int64_t n, std::uint32_t step) {
  Tensor t = Tensor::empty({n}, DType::f64);
  fill_normal(t, {7, step, 0, kUseTest, 0}, 0, 1);
  return {t.data<double>(), t.data<double>() + n};
}

// The formula as the literature writes it, one element at a time.
struct Reference {
  std::vector<double> w, m, v;
  std::int64_t t = 0;

  void step(const std::vector<double>& g, double lr, const AdamWOptions& o, bool decay) {
    ++t;
    const double correction1 = 1 - std::pow(o.beta1, static_cast<double>(t));
    const double correction2 = 1 - std::pow(o.beta2, static_cast<double>(t));
    for (std::size_t i = 0; i < w.size(); ++i) {
      if (decay) w[i] -= lr * o.weight_decay * w[i];
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g[i];
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g[i] * g[i];
      w[i] -= lr * (m[i] / correction1) / (std::sqrt(v[i] / correction2) + o.eps);
    }
  }
};

// 37 elements: whole vectors and a tail. `steps` updates against the reference.
void compare_with_reference(DType dtype, std::int64_t steps, double tolerance) {
  const std::int64_t n = 37;
  Parameters parameters;
  Parameter& matrix = parameters.add("matrix", tensor_of(normals(n, 0), dtype), true);
  Parameter& bias = parameters.add("bias", tensor_of(normals(n, 1), dtype), false);
  const AdamWOptions options{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  AdamW optimizer(parameters.named, options);
  const std::vector<double> zeros(static_cast<std::size_t>(n));
  std::vector<Reference> references{{normals(n, 0), zeros, zeros}, {normals(n, 1), zeros, zeros}};
  for (std::int64_t step = 0; step < steps; ++step) {
    const double lr = 1e-2 / (1 + 0.01 * static_cast<double>(step));
    std::uint32_t key = static_cast<std::uint32_t>(2 * step + 2);
    for (std::size_t p = 0; p < 2; ++p, ++key) {
      const std::vector<double> g = normals(n, key);
      set_grad(p == 0 ? matrix : bias, tensor_of(g, dtype));
      references[p].step(g, lr, options, p == 0);
    }
    optimizer.step(lr);
  }
  EXPECT_EQ(optimizer.steps(), steps);
  visit_floating(dtype, "test", [&]<class T>(TypeTag<T>) {
    for (std::size_t p = 0; p < 2; ++p) {
      const T* w = parameters.named[p].value.data<T>();
      for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
        const double expected = references[p].w[i];
        EXPECT_NEAR(static_cast<double>(w[i]), expected, tolerance * std::abs(expected) + 1e-7)
            << parameters.named[p].name << '[' << i << ']';
      }
    }
  });
}

TEST(AdamW, OneStepIsTheWrittenFormula) {
  compare_with_reference(DType::f64, 1, 1e-14);
  compare_with_reference(DType::f32, 1, 1e-6);
}

TEST(AdamW, AThousandStepsFollowTheDoubleTrajectory) {
  compare_with_reference(DType::f64, 1000, 1e-11);
  compare_with_reference(DType::f32, 1000, 1e-4);
}

TEST(AdamW, TheFirstStepMovesByTheLearningRate) {
  Parameters parameters;
  Parameter& p = parameters.add("p", tensor_of({1.0, 1.0, 1.0}, DType::f32), false);
  set_grad(p, tensor_of({1e-3, -5.0, 0.0}, DType::f32));
  AdamW optimizer(parameters.named, {.weight_decay = 0.1});
  optimizer.step(0.25);
  EXPECT_NEAR(p.data<float>()[0], 0.75F, 1e-5);
  EXPECT_NEAR(p.data<float>()[1], 1.25F, 1e-6);
  EXPECT_EQ(p.data<float>()[2], 1.0F);
}

TEST(AdamW, NoGradientLeavesATensorAloneAndAZeroOneDecaysIt) {
  Parameters parameters;
  Parameter& none = parameters.add("none", tensor_of({2.0}, DType::f64));
  Parameter& zero = parameters.add("zero", tensor_of({2.0}, DType::f64));
  set_grad(zero, tensor_of({0.0}, DType::f64));
  AdamW optimizer(parameters.named, {.weight_decay = 0.5});
  optimizer.step(0.1);
  EXPECT_EQ(none.item(), 2.0);
  EXPECT_EQ(zero.item(), 2.0 * (1 - 0.1 * 0.5));
}

TEST(AdamW, SameBitsWithAnyNumberOfThreads) {
  const int before = num_threads();
  std::vector<std::vector<float>> results;
  std::vector<double> norms;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    Parameters parameters;
    Parameter& p = parameters.add("p", tensor_of(normals(100'003, 0), DType::f32));
    set_grad(p, tensor_of(normals(100'003, 1), DType::f32));
    AdamW optimizer(parameters.named, {});
    const GradientNorm norm = gradient_norm(optimizer.tensors());
    norms.push_back(norm.value);
    optimizer.step(1e-2, clip_scale(norm.value, 1.0));
    results.emplace_back(p.data<float>(), p.data<float>() + p.numel());
  }
  set_num_threads(before);
  EXPECT_EQ(norms[0], norms[1]);
  EXPECT_EQ(norms[0], norms[2]);
  EXPECT_TRUE(results[0] == results[1] && results[0] == results[2]);
}

TEST(AdamW, RefusesOptionsOutOfRange) {
  const auto build = [](AdamWOptions options) { return AdamW({}, options); };
  expect_in("got 1 and 0.99, expected values in [0, 1)",
            error_of(ErrorKind::usage, [&] { build({.beta1 = 1.0}); }));
  expect_in("adam_eps", error_of(ErrorKind::usage, [&] { build({.eps = 0}); }));
  expect_in("weight_decay", error_of(ErrorKind::usage, [&] { build({.weight_decay = -1}); }));
}

// The rows of a padded vocabulary have no gradient: there, m / (sqrt(v) + eps) is 0 / eps.
TEST(AdamW, OptionsAreInRangeInTheTypeOfTheUpdate) {
  const auto stepped = [](DType dtype, const AdamWOptions& options) {
    Parameters parameters;
    Parameter& p = parameters.add("p", tensor_of({1.0, 2.0}, dtype));
    set_grad(p, tensor_of({0.5, 0.0}, dtype));
    AdamW optimizer(parameters.named, options);
    optimizer.step(1e-3);
    return first_non_finite(parameters.named);
  };
  expect_in("got 1e-50, expected a number above 0 in float32",
            error_of(ErrorKind::usage, [&] { stepped(DType::f32, {.eps = 1e-50}); }));
  expect_in("expected values in [0, 1) of float32",
            error_of(ErrorKind::usage, [&] { stepped(DType::f32, {.beta2 = 0.9999999999}); }));
  EXPECT_EQ(stepped(DType::f64, {.beta2 = 0.9999999999, .eps = 1e-50}), "");
  EXPECT_EQ(stepped(DType::f32, {.beta1 = 1 - 0x1p-24, .beta2 = 1 - 0x1p-24, .eps = 0x1p-126}), "");
}

TEST(GradientNorm, SumsAllTensorsInDouble) {
  Parameters parameters;
  set_grad(parameters.add("a", tensor_of({0, 0}, DType::f32)), tensor_of({3, 0}, DType::f32));
  set_grad(parameters.add("b", tensor_of({0}, DType::f32)), tensor_of({4}, DType::f32));
  parameters.add("none", tensor_of({1}, DType::f32));
  const GradientNorm norm = gradient_norm(parameters.named);
  EXPECT_EQ(norm.value, 5.0);
  EXPECT_TRUE(norm.finite());
}

TEST(GradientNorm, DoesNotOverflowWhereTheSquareWouldInFloat) {
  Parameters parameters;
  Parameter& p = parameters.add("p", tensor_of({1, 1}, DType::f32));
  const double g = 2e22;  // its square is above FLT_MAX
  set_grad(p, tensor_of({g, -g}, DType::f32));
  const GradientNorm norm = gradient_norm(parameters.named, 1.0);
  EXPECT_NEAR(norm.value / (g * std::sqrt(2.0)), 1.0, 1e-7);
  EXPECT_TRUE(norm.finite());
  AdamW optimizer(parameters.named, {.weight_decay = 0});
  optimizer.step(0.5, clip_scale(norm.value, 1.0));
  EXPECT_NEAR(p.data<float>()[0], 0.5F, 1e-4);
  EXPECT_NEAR(p.data<float>()[1], 1.5F, 1e-4);
  // Without clipping the second moment would become infinite and the weight freeze: not finite.
  EXPECT_EQ(gradient_norm(parameters.named, 0).first_bad, "p");
}

TEST(GradientNorm, NamesTheFirstBadTensor) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      Parameters parameters;
      set_grad(parameters.add("a", tensor_of({0}, dtype)), tensor_of({1}, dtype));
      set_grad(parameters.add("b", tensor_of({0, 0}, dtype)), tensor_of({1, bad}, dtype));
      set_grad(parameters.add("c", tensor_of({0}, dtype)), tensor_of({bad}, dtype));
      const GradientNorm norm = gradient_norm(parameters.named, 1.0);
      EXPECT_FALSE(norm.finite());
      EXPECT_EQ(norm.first_bad, "b");
    }
  }
}

// m and v are float32 at least; a narrow weight has a master copy: 2 + 4 + 4 + 4 bytes an element.
TEST(AdamW, StateIsWideWhereTheWeightIsNarrow) {
  const auto bytes_of = [](DType dtype) {
    Parameters parameters;
    parameters.add("w", Tensor::empty({256, 1024}, dtype, kMeta));
    Allocator& meta = allocator(kMeta);
    const std::size_t before = meta.stats().allocated;
    AdamW optimizer(parameters.named, {});
    EXPECT_EQ(optimizer.first_moment(0).dtype(), dtype == DType::f64 ? DType::f64 : DType::f32);
    EXPECT_EQ(optimizer.second_moment(0).dtype(), optimizer.first_moment(0).dtype());
    return (meta.stats().allocated - before) / (256 * 1024);
  };
  EXPECT_EQ(bytes_of(DType::f32), 8U);
  EXPECT_EQ(bytes_of(DType::f64), 16U);
  EXPECT_EQ(bytes_of(DType::bf16), 12U);
  EXPECT_EQ(bytes_of(DType::f16), 12U);
}

TEST(GradientNorm, ClipScale) {
  EXPECT_EQ(clip_scale(0.0, 1.0), 1.0);
  EXPECT_EQ(clip_scale(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_scale(4.0, 1.0), 0.25);
  EXPECT_EQ(clip_scale(4.0, 0.0), 1.0);  // off
}

TEST(StepNumbers, TellsWhatTheStepDid) {
  Parameters parameters;
  Parameter& p = parameters.add("p", tensor_of({1, 2}, DType::f64));
  set_grad(p, tensor_of({3, 4}, DType::f64));
  AdamW optimizer(parameters.named, {});
  StepNumbers numbers(kCpu);
  for (const double loss : {0.5, 0.25}) numbers.add_loss(tensor_of({loss}, DType::f64));
  numbers.measure(optimizer.tensors(), 1.0);
  optimizer.step(0.1, numbers);
  const StepOutcome outcome = numbers.read(optimizer.tensors());
  EXPECT_EQ(outcome.loss, 0.75);
  EXPECT_EQ(outcome.grad_norm, 5.0);
  EXPECT_FALSE(outcome.skipped);
  EXPECT_NE(p.data<double>()[0], 1.0);
}

TEST(StepNumbers, ALossThatIsNotFiniteSkipsTheUpdate) {
  Parameters parameters;
  Parameter& p = parameters.add("p", tensor_of({1, 2}, DType::f64));
  set_grad(p, tensor_of({3, 4}, DType::f64));
  AdamW optimizer(parameters.named, {});
  StepNumbers numbers(kCpu);
  numbers.add_loss(tensor_of({std::nan("")}, DType::f64));
  numbers.measure(optimizer.tensors(), 1.0);
  optimizer.step(0.1, numbers);
  const StepOutcome outcome = numbers.read(optimizer.tensors());
  EXPECT_TRUE(outcome.skipped);
  EXPECT_EQ(outcome.first_bad, "");
  EXPECT_EQ(p.data<double>()[0], 1.0);
  EXPECT_EQ(optimizer.first_moment(0).data<double>()[0], 0.0);
}

TEST(FirstNonFinite, LooksAtValues) {
  Parameters parameters;
  parameters.add("fine", tensor_of({3e38}, DType::f32));
  EXPECT_EQ(first_non_finite(parameters.named), "");
  parameters.add("bad", tensor_of({1, std::nan("")}, DType::f32));
  EXPECT_EQ(first_non_finite(parameters.named), "bad");
}

}  // namespace
}  // namespace duet::test
