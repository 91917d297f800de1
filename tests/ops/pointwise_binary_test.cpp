// Ops that pointwise<F>(a, b) makes: their proof, and second derivatives from da and db.
#include "ops/pointwise/pointwise_binary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/memory_ops.h"
#include "tests/ops/checks.h"
#include "tests/ops/harness.h"
#include "tests/ops/oracle.h"
#include "tests/ops/proof.h"

namespace duet::test {
namespace {

struct Ratio {
  static constexpr const char* name = "ratio";
  static constexpr BinaryF32 vector_f = nullptr;
  template <class T>
  static T f(T a, T b) {
    return a / b;
  }
  template <class T>
  static T da(T, T b) {
    return T(1) / b;
  }
  template <class T>
  static T db(T a, T b) {
    return -a / (b * b);
  }
};

struct Power {
  static constexpr const char* name = "power";
  static constexpr BinaryF32 vector_f = nullptr;
  template <class T>
  static T f(T a, T b) {
    return std::pow(a, b);
  }
  template <class T>
  static T da(T a, T b) {
    using std::pow;
    return b * pow(a, b - T(1));
  }
  template <class T>
  static T db(T a, T b) {
    using std::log, std::pow;
    return pow(a, b) * log(a);
  }
};

using Binary = Tensor (*)(const Tensor&, const Tensor&);
struct Named {
  const char* name;
  Binary op;
  double (*f)(double, double);
};
const Named kOps[] = {
    {"ratio", pointwise<Ratio>, [](double a, double b) { return a / b; }},
    {"power", pointwise<Power>, [](double a, double b) { return std::pow(a, b); }},
};

OpCase row_of(const Named& op, const Shape& a, const Shape& b) {
  OpCase row;
  row.name = concat(op.name, a, b);
  row.inputs = {a, b};
  row.call = [op](const Tensors& in) { return Tensors{op.op(in[0], in[1])}; };
  row.oracle = [op](const Tensors& in) {
    const Shape shape = broadcast_shapes(in[0].shape(), in[1].shape(), "oracle");
    const Values a_values = elements(in[0]), b_values = elements(in[1]);
    Values y(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < y.size(); ++i) {
      const Dims at = index_of(shape, static_cast<std::int64_t>(i));
      y[i] = op.f(a_values[position(in[0].shape(), at)], b_values[position(in[1].shape(), at)]);
    }
    return Tensors{tensor_of(shape, y)};
  };
  row.low = 0.5;
  row.high = 3;
  row.saved_bytes = (a.numel() + b.numel()) * 4;
  row.empty_ok = a.ndim() > 0 && a.ndim() >= b.ndim();
  row.broadcasts = a == b;
  return row;
}

TEST(PointwiseBinary, PassesItsProof) {
  const std::vector<std::array<Shape, 2>> shapes{{Shape{3, 5}, Shape{3, 5}},
                                                 {Shape{4, 1, 3}, Shape{2, 1}},
                                                 {Shape{}, Shape{2, 3}},
                                                 {Shape{4, 37}, Shape{4, 1}},
                                                 {Shape{5}, Shape{2, 5}}};
  for (const Named& op : kOps) {
    for (const auto& [a, b] : shapes) {
      const OpCase row = row_of(op, a, b);
      EXPECT_TRUE(offers_second_order(row)) << row.name;
      const auto fault = first_fault(row);
      EXPECT_FALSE(fault.has_value()) << fault->check << ": " << fault->message;
    }
  }
}

Tensor leaf_of(const Tensor& t, DType dtype) {
  Tensor x = convert(t, dtype);
  set_requires_grad(x);
  return x;
}

TEST(PointwiseBinary, GradientsKeepTheirBitsUnderCreateGraph) {
  for (const Named& op : kOps) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Tensor a = leaf_of(random_tensor({7, 37}, 0.5, 3, 1), dtype);
      const Tensor b = leaf_of(random_tensor({37}, 0.5, 3, 2), dtype);
      const Tensor dy = convert(random_tensor({7, 37}, -1, 1, 3), dtype);
      const Tensors plain = grad(op.op(a, b), {a, b}, {.grad_output = dy});
      const Tensors recorded = grad(op.op(a, b), {a, b}, {.create_graph = true, .grad_output = dy});
      EXPECT_TRUE(requires_grad(recorded[0]) && requires_grad(recorded[1]));
      EXPECT_EQ(compare_bits(op.name, {plain, {}}, {recorded, {}}), "");
    }
  }
}

// All of d2f: by a and b of (sum of both first gradients, each weighted).
Tensors second_of(const Named& op, const Tensor& a, const Tensor& b) {
  const Tensors first = grad(sum(op.op(a, b)), {a, b}, {.create_graph = true});
  return grad(add(sum(first[0]), scale(sum(first[1]), 0.5)), {a, b});
}

TEST(PointwiseBinary, SecondDerivativesInF32AreThoseInF64) {
  for (const Named& op : kOps) {
    const auto at = [&](DType dtype) {
      return second_of(op, leaf_of(random_tensor({7, 37}, 0.5, 3, 1), dtype),
                       leaf_of(random_tensor({37}, 0.5, 3, 2), dtype));
    };
    const Tensors in_f32 = at(DType::f32), in_f64 = at(DType::f64);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(compare(op.name, in_f32[i], in_f64[i], {2e-5, 2e-5}), "");
    }
  }
}

// x^x: f' = x^x (1 + log x), f'' = x^x ((1 + log x)^2 + 1 / x)
TEST(PointwiseBinary, OneTensorTwice) {
  const Tensor x = leaf_of(random_tensor({9}, 0.5, 2, 4), DType::f64);
  const Tensor first = grad(sum(pointwise<Power>(x, x)), {x}, {.create_graph = true})[0];
  const Tensor second = grad(sum(first), {x})[0];
  Values want = elements(x);
  for (double& v : want) {
    const double slope = 1 + std::log(v);
    v = std::pow(v, v) * (slope * slope + 1 / v);
  }
  EXPECT_EQ(compare("x^x", second, tensor_of({9}, want), {1e-12, 1e-12}), "");
}

// a^2 at a < 0: the exponent does not move, so no logarithm of a is met.
TEST(PointwiseBinary, PowersOfNegativeNumbers) {
  const Tensor a = leaf_of(Tensor::full({}, -3, DType::f64), DType::f64);
  const Tensor two = Tensor::full({}, 2, DType::f64);
  const Tensor first = grad(pointwise<Power>(a, two), {a}, {.create_graph = true})[0];
  EXPECT_EQ(first.item(), -6.0);
  EXPECT_EQ(grad(first, {a})[0].item(), 2.0);
}

TEST(PointwiseBinary, TheThirdIsRefused) {
  const Tensor a = leaf_of(random_tensor({9}, 0.5, 2, 4), DType::f64);
  const Tensor b = leaf_of(random_tensor({9}, 0.5, 2, 5), DType::f64);
  const auto by = [](const Tensor& y, const Tensor& x) {
    return grad(sum(y), {x}, {.create_graph = true})[0];
  };
  const Tensor first = by(pointwise<Ratio>(a, b), a);
  std::string text;
  try {
    by(first, b);
  } catch (const Error& e) {
    text = e.what();
  }
  EXPECT_EQ(text.rfind("ratio: second derivatives are not offered", 0), 0U) << text;
}

// a b whose da lets b move `factor` times what it should, which only a second derivative shows.
struct WrongSecond {
  static constexpr const char* name = "wrong_second";
  static constexpr BinaryF32 vector_f = nullptr;
  inline static double factor = 1;
  template <class T>
  static T moving(T x) {
    return x;
  }
  template <class T>
  static Dual<T> moving(Dual<T> x) {
    return {x.v, x.d * static_cast<T>(factor)};
  }
  template <class T>
  static T f(T a, T b) {
    return a * b;
  }
  template <class T>
  static T da(T, T b) {
    return moving(b);
  }
  template <class T>
  static T db(T a, T) {
    return a;
  }
};

TEST(PointwiseBinary, AWrongSecondDerivativeIsCaught) {
  const OpCase row = row_of({"wrong_second", pointwise<WrongSecond>, nullptr}, {3, 4}, {4});
  EXPECT_EQ(check_second_order(row), "");
  for (const double factor : {1.01, 0.0, -1.0}) {
    WrongSecond::factor = factor;
    const std::string fault = check_second_order(row);
    EXPECT_NE(fault.find("second gradient by input 1"), std::string::npos) << fault;
  }
  WrongSecond::factor = 1;
}

using Number = Dual<double>;

// The derivative beside a central difference, at 0.7.
template <class F>
void expect_derivative(F&& f) {
  const double h = 1e-6;
  const double want = (f(Number(0.7 + h, 0)).v - f(Number(0.7 - h, 0)).v) / (2 * h);
  EXPECT_NEAR(f(Number(0.7, 1)).d, want, 1e-8);
}

TEST(DualNumbers, FunctionsAndBranches) {
  expect_derivative([](Number x) { return log(x); });
  expect_derivative([](Number x) { return sin(x); });
  expect_derivative([](Number x) { return cos(x); });
  expect_derivative([](Number x) { return pow(x, Number(2.5)); });
  expect_derivative([](Number x) { return pow(Number(2.5), x); });
  expect_derivative([](Number x) { return pow(x, x); });
  EXPECT_EQ(pow(Number(0, 1), Number(1)).d, 1);
  EXPECT_TRUE(Number(1, 5) >= Number(1, 7) && Number(1, 7) <= Number(1, 5));
  EXPECT_FALSE(Number(1, 7) >= Number(2, 5) || Number(2, 5) <= Number(1, 7));
}

}  // namespace
}  // namespace duet::test
