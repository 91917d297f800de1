// Special cases of ops/pointwise: extreme arguments, every instruction set, dropout's mask,
// broadcasting against nothing, threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "autograd/node.h"
#include "autograd/saved_tensor.h"
#include "hwy/targets.h"
#include "ops/ops.h"
#include "runtime/cpu/parallel.h"
#include "runtime/memory_ops.h"
#include "tests/ops/harness.h"
#include "tests/ops/oracle.h"

namespace duet::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

struct Activation {
  const char* name;
  Tensor (*op)(const Tensor&);
  double (*f)(double);
  double (*df)(double);
};

double logistic(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
double phi(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double bell(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * std::acos(-1.0)); }
double two_u(double x) { return 2 * std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x); }
double two_du(double x) { return 2 * std::sqrt(2 / std::acos(-1.0)) * (1 + 3 * 0.044715 * x * x); }

const Activation kActivations[] = {
    {"silu", silu, [](double x) { return x * logistic(x); },
     [](double x) { return logistic(x) * (1 + x * logistic(-x)); }},
    {"gelu", gelu, [](double x) { return x * phi(x); },
     [](double x) { return phi(x) + x * bell(x); }},
    {"gelu_tanh", gelu_tanh, [](double x) { return x * logistic(two_u(x)); },
     [](double x) {
       const double s = logistic(two_u(x));
       return s + x * s * logistic(-two_u(x)) * two_du(x);
     }},
};

// Value and derivative of the op at each x, in f32, from contiguous or from gapped memory.
std::pair<Values, Values> evaluate(const Activation& a, const Values& x, DType dtype, bool gaps) {
  const auto n = static_cast<std::int64_t>(x.size());
  Tensor t = convert(tensor_of({n}, x), dtype);
  if (gaps) {
    Tensor wide = Tensor::full({2 * n}, kNan, dtype);
    Tensor window = wide.slice_view(0, 0, 2 * n, 2);
    copy(window, t);
    t = window;
  }
  set_requires_grad(t);
  const Tensor y = a.op(t);
  backward(y, Tensor::full({n}, 1.0, dtype));
  return {values(y), values(grad(t))};
}

// |got - want| <= 4e-6 |want| + 1e-7, infinities and NaN in place.
void expect_near(const char* what, double x, double got, double want) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << what << " at " << x << ": got " << got;
  } else if (std::isinf(want)) {
    EXPECT_EQ(got, want) << what << " at " << x;
  } else {
    EXPECT_LE(std::abs(got - want), 1e-7 + 4e-6 * std::abs(want))
        << what << " at " << x << ": got " << got << ", expected " << want;
  }
}

class Activations : public testing::TestWithParam<Activation> {};

TEST_P(Activations, AtExtremeArguments) {
  const Activation& a = GetParam();
  const Values finite{0,   -0.0, 1e-8, -1e-8, 1e-30, -1e-30, 0.5,  -0.5, 3,
                      -3,  10,   -10,  20,    -20,   50,     -50,  88,   -88,
                      104, -104, 800,  -800,  1e10,  -1e10,  3e38, -3e38};
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const bool gaps : {false, true}) {
      const auto [y, dy] = evaluate(a, finite, dtype, gaps);
      for (std::size_t i = 0; i < finite.size(); ++i) {
        const double x = finite[i];
        // The formulas overflow far out; their limits are 0 and the identity.
        const bool far = std::abs(x) > 700;
        expect_near("value", x, y[i],
                    far ? (x > 0 ? static_cast<double>(static_cast<float>(x)) : 0) : a.f(x));
        expect_near("derivative", x, dy[i], far ? (x > 0 ? 1 : 0) : a.df(x));
      }
      const auto [limits, slopes] = evaluate(a, {kInf, -kInf, kNan}, dtype, gaps);
      EXPECT_EQ(limits[0], kInf);
      EXPECT_EQ(limits[1], 0.0);
      EXPECT_TRUE(std::isnan(limits[2]));
      EXPECT_EQ(slopes[0], 1.0);
      EXPECT_EQ(slopes[1], 0.0);
      EXPECT_TRUE(std::isnan(slopes[2]));
    }
  }
}

// Runs `f` once per instruction set that this machine has.
template <class F>
void on_every_target(F&& f) {
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    f(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

TEST_P(Activations, AreExactToAFewUlpOnEveryTarget) {
  const Activation& a = GetParam();
  Values x;
  for (int i = 0; i <= 20'000; ++i)
    x.push_back(static_cast<double>(static_cast<float>(-15 + i * 1.5e-3)));
  on_every_target([&](const char* target) {
    const auto [y, dy] = evaluate(a, x, DType::f32, false);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = a.f(x[i]);
      expect_near(target, x[i], y[i], want);
      expect_near(target, x[i], dy[i], a.df(x[i]));
      // In the far tail, too, the value is right relative to itself, down to subnormals.
      if (std::abs(want) > 1e-30) worst = std::max(worst, std::abs(y[i] - want) / std::abs(want));
    }
    EXPECT_LT(worst, 2e-5) << target;
  });
}

TEST_P(Activations, GiveTheSameBitsWhereverAnElementLies) {
  const Activation& a = GetParam();
  const Values x(67, 1.2345678);
  const auto [y, dy] = evaluate(a, x, DType::f32, false);
  for (std::size_t i = 1; i < x.size(); ++i) {
    EXPECT_EQ(y[i], y[0]) << i;
    EXPECT_EQ(dy[i], dy[0]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Pointwise, Activations, testing::ValuesIn(kActivations),
                         [](const auto& row) { return row.param.name; });

TEST(Pointwise, SwigluAtExtremeArguments) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    Tensor x = convert(tensor_of({3, 2}, {-kInf, 2, kInf, 2, -200, 1e30}), dtype);
    set_requires_grad(x);
    const Tensor y = swiglu(x);
    EXPECT_EQ(values(y)[0], 0.0);
    EXPECT_EQ(values(y)[1], kInf);
    EXPECT_NEAR(values(y)[2], 0.0, 1e-50);
    backward(y, Tensor::full({3, 1}, 1.0, dtype));
    EXPECT_EQ(values(grad(x))[0], 0.0);
    EXPECT_EQ(values(grad(x))[2], 2.0);
  }
}

// --- Broadcasting

// C07: a gradient has its operand's shape, summed over the dims in which it was broadcast.
TEST(Pointwise, BroadcastGradientsHaveTheOperandsShape) {
  const std::pair<Shape, Shape> pairs[] = {{{1}, {5, 4}}, {{4, 1}, {1, 4}}, {{}, {2}}};
  for (const auto& [left, right] : pairs) {
    Tensor a = random_tensor(left, 1, 2, 1), b = random_tensor(right, 1, 2, 2);
    set_requires_grad(a);
    set_requires_grad(b);
    const Tensor y = mul(a, b);
    backward(y, Tensor::full(y.shape(), 1.0, DType::f64));
    EXPECT_EQ(grad(a).shape(), left);
    EXPECT_EQ(grad(b).shape(), right);
    double sum_b = 0;
    for (const double v : values(b)) sum_b += v;
    if (a.numel() == 1) {
      EXPECT_NEAR(values(grad(a))[0], sum_b, 1e-12);
    }
  }
}

TEST(Pointwise, BroadcastAgainstNothingGivesZeroGradients) {
  for (const auto op : {add, mul}) {
    Tensor a = random_tensor({1, 3}, 1, 2, 1), b = Tensor::empty({0, 3}, DType::f64);
    set_requires_grad(a);
    set_requires_grad(b);
    const Tensor y = op(a, b);
    EXPECT_EQ(y.shape(), (Shape{0, 3}));
    backward(y, y.detach());
    EXPECT_EQ(values(grad(a)), (Values{0, 0, 0}));
    EXPECT_EQ(grad(b).shape(), (Shape{0, 3}));
  }
}

// C48: nothing is kept or computed for an operand that needs no gradient.
TEST(Pointwise, MulKeepsOnlyWhatIsNeeded) {
  Tensor x = tensor_of({2}, {kInf, -2});
  const Tensor constant = tensor_of({2}, {0, 2});
  Tensor w = tensor_of({2}, {0, 2});
  set_requires_grad(w);
  const std::size_t before = saved_bytes();
  const Tensor y = mul(constant, w);
  EXPECT_EQ(saved_bytes() - before, 16U) << "the constant alone";
  backward(y, x);  // inf * 0 arises only in the gradient that nobody asked for
  EXPECT_EQ(values(grad(w))[1], -4.0);
  EXPECT_EQ(saved_bytes(), before);
}

// --- Dropout

RandomKey key_with(std::uint32_t step) { return {99, step, 3, kUseDropoutMlp, 0}; }

TEST(Dropout, KeepsAboutOneMinusPAndScales) {
  constexpr std::int64_t kN = 200'000;
  const Tensor x = Tensor::full({kN}, 1.0, DType::f32);
  const Values y = values(dropout(x, 0.2, key_with(1)));
  double kept = 0;
  for (const double v : y) {
    EXPECT_TRUE(v == 0.0 || v == 1.25) << v;
    kept += v != 0;
  }
  EXPECT_NEAR(kept / kN, 0.8, 5 * std::sqrt(0.2 * 0.8 / kN));
}

TEST(Dropout, BackwardDrawsTheSameMask) {
  Tensor x = Tensor::full({50, 401}, 1.0, DType::f32);
  set_requires_grad(x);
  const std::size_t before = saved_bytes();
  const Tensor y = dropout(x, 0.5, key_with(1));
  EXPECT_EQ(saved_bytes(), before) << "no mask is kept";
  backward(y, Tensor::full(x.shape(), 1.0, DType::f32));
  EXPECT_EQ(values(y), values(grad(x)));
}

TEST(Dropout, EveryPartOfTheKeyMatters) {
  const Tensor x = Tensor::full({256}, 1.0, DType::f32);
  const RandomKey base{1, 2, 3, kUseDropoutMlp, 4};
  const Values y = values(dropout(x, 0.5, base));
  EXPECT_EQ(y, values(dropout(x, 0.5, base)));
  RandomKey keys[5] = {base, base, base, base, base};
  keys[0].seed ^= std::uint64_t{1} << 40;
  keys[1].step += 1;
  keys[2].layer += 1;
  keys[3].use = kUseDropoutAttention;
  keys[4].micro += 1;
  for (const RandomKey& key : keys) EXPECT_NE(y, values(dropout(x, 0.5, key)));
}

TEST(Dropout, TheMaskFollowsTheRowMajorIndex) {
  const Tensor x = Tensor::full({300, 200}, 1.0, DType::f32);  // more than one piece per thread
  const Tensor turned = Tensor::full({200, 300}, 1.0, DType::f32).transpose_view(0, 1);
  const Values y = values(dropout(x, 0.3, key_with(1)));
  EXPECT_EQ(y, values(dropout(turned, 0.3, key_with(1))));
  for (std::size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(y[i] != 0, random_u32(key_with(1), i) / 4294967296.0 >= 0.3F) << i;
  }
}

TEST(Dropout, AtZeroAndOne) {
  Tensor x = tensor_of({3}, {1, -2, kInf});
  set_requires_grad(x);
  const Tensor all = dropout(x, 0, key_with(1));
  EXPECT_EQ(values(all), values(x));
  const Tensor none = dropout(x, 1, key_with(1));
  EXPECT_EQ(values(none), (Values{0, 0, 0})) << "infinity is dropped as well";
  backward(none, Tensor::full({3}, 1.0, DType::f64));
  EXPECT_EQ(values(grad(x)), (Values{0, 0, 0}));
  backward(sum(all));
  EXPECT_EQ(values(grad(x)), (Values{1, 1, 1}));
}

// --- Large tensors, threads, errors

TEST(Pointwise, LargeTensorsOfAnyLayout) {
  const Shape shapes[] = {{100'003}, {3, 40'000}, {40'000, 3}, {1, 1, 70'001}, {2, 5, 7, 1001}};
  for (const Shape& shape : shapes) {
    const Tensor x = random_tensor(shape, -4, 4, 1);
    const Values want = [&] {
      Values v = values(x);
      for (double& e : v) e = e * logistic(e);
      return v;
    }();
    const Tensor plain = tensor_of(shape, want);
    EXPECT_EQ(compare("silu f64", silu(x), plain, {1e-12, 1e-12}), "");
    EXPECT_EQ(compare("silu f32", silu(convert(x, DType::f32)), plain, {4e-6, 1e-7}), "");
    if (shape.ndim() < 2) continue;
    const Tensor turned = x.transpose_view(0, -1);
    EXPECT_EQ(compare("silu turned", silu(turned), plain.transpose_view(0, -1), {1e-12, 1e-12}),
              "");
    EXPECT_EQ(compare("add turned", add(turned, turned), scale(turned, 2), {}), "");
  }
}

TEST(Pointwise, BitsDoNotDependOnTheThreads) {
  const Tensor x = convert(random_tensor({37, 2 * 2111}, -4, 4, 1), DType::f32);
  const auto all = [&] {
    return std::vector<Tensor>{silu(x),      gelu(x),
                               gelu_tanh(x), swiglu(x),
                               add(x, x),    dropout(x, 0.5, key_with(1)),
                               sum(x),       sum(x, {0}),
                               sum(x, {1}),  sum(transpose(x, 0, 1), {1})};
  };
  const int before = num_threads();
  set_num_threads(1);
  const std::vector<Tensor> one = all();
  set_num_threads(3);
  const std::vector<Tensor> three = all();
  set_num_threads(before);
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(std::memcmp(one[i].data<float>(), three[i].data<float>(), one[i].nbytes()), 0) << i;
  }
}

std::string text_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Pointwise, RefusalsSayWhatIsWrong) {
  const Tensor a = Tensor::zeros({2, 3}, DType::f32), b = Tensor::zeros({4}, DType::f32);
  EXPECT_EQ(text_of([&] { add(a, b); }),
            "add: shapes do not broadcast: got [2, 3] and [4], expected equal sizes or 1 in dim -1 "
            "(3 against 4)");
  EXPECT_EQ(text_of([&] { mul(a, Tensor()); }),
            "mul: b is an undefined tensor; expected one with values");
  EXPECT_EQ(text_of([&] { mul(a, convert(a, DType::f64)); }),
            "mul: dtypes differ: b is f64, a is f32; convert one of them");
  EXPECT_EQ(text_of([&] { silu(Tensor::zeros({2}, DType::i64)); }),
            "silu: x is i64, expected f32 or f64; convert it first");
  EXPECT_EQ(text_of([&] {
              add(a, Tensor::zeros({2, 3}, DType::f32, kMeta));
            }),
            "add: devices differ: b lies on meta, a on cpu; copy one of them");
  EXPECT_EQ(text_of([&] { swiglu(a); }),
            "swiglu: the last dim holds gate and up: got [2, 3], expected an even last dim");
  EXPECT_EQ(text_of([&] { swiglu(Tensor::zeros({}, DType::f32)); }),
            "swiglu: the last dim holds gate and up: got [], expected an even last dim");
  for (const double p : {-0.1, 1.5, kNan}) {
    EXPECT_NE(text_of([&] { dropout(a, p, key_with(1)); }).find("dropout: p is out of range: got "),
              std::string::npos);
  }
}

}  // namespace
}  // namespace duet::test
