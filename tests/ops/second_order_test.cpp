// Second derivatives of every op of the table, and the bits of the first under create_graph.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/op.h"
#include "runtime/memory_ops.h"
#include "tests/ops/checks.h"
#include "tests/ops/harness.h"
#include "tests/ops/op_cases.h"

namespace duet::test {

// Defined in op_cases_test.cpp.
void PrintTo(const OpCase* row, std::ostream* out);
std::vector<const OpCase*> op_case_pointers();

namespace {

class SecondOrder : public testing::TestWithParam<const OpCase*> {
 protected:
  static const OpCase& row() { return *GetParam(); }
};

TEST_P(SecondOrder, Gradients) { EXPECT_EQ(check_second_order(row()), ""); }
TEST_P(SecondOrder, WrongGradientsAreCaught) {
  EXPECT_EQ(check_wrong_second_order_is_caught(row()), "");
}

INSTANTIATE_TEST_SUITE_P(Table, SecondOrder, testing::ValuesIn(op_case_pointers()),
                         [](const auto& row) { return row.param->name; });

// The ops of the models that must keep their second derivatives.
constexpr const char* kOffered[] = {
    "add", "sub", "mul", "scale", "silu", "gelu", "gelu_tanh", "softplus", "exp", "sigmoid",
    "swiglu", "dropout", "softmax", "layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm",
    "sum", "mean", "matmul", "linear", "embedding", "rope", "diff_combine", "cross_entropy",
    "reshape", "transpose", "slice", "split", "cat",
    // of a whole layer
    "linear_gelu_tanh"};

TEST(SecondOrder, IsOfferedByTheOpsOfTheModels) {
  for (const std::string op : kOffered) {
    bool seen = false;
    for (const OpCase& row : op_cases()) {
      if (row.name != op) continue;
      seen = true;
      EXPECT_TRUE(offers_second_order(row)) << op;
    }
    EXPECT_TRUE(seen) << op << " has no row of its name";
  }
}

// y = x^2 with a second derivative that is `factor` times what it should be.
struct WrongSecond {
  static constexpr const char* name = "wrong_second";
  struct Saved {
    SavedTensor x;
  };
  double factor;
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.x.save_input(x);
    return mul(x, x);
  }
  Tensor backward(const Saved& saved, const Tensor& dy) const {
    return scale(mul(saved.x.get(name), dy), 2);
  }
  // 2 x dy, in which x moves `factor` times as much
  Tensor differentiable_backward(const Saved& saved, const Tensor& dy) const {
    const Tensor x = saved.x.with_edge(name);
    const Tensor moving = add(scale(x, factor), scale(x.detach(), 1 - factor));
    return scale(mul(moving, dy), 2);
  }
};

TEST(SecondOrder, AWrongOneIsCaught) {
  for (const double factor : {1.0, 1.01, 0.0, -1.0}) {
    OpCase row;
    row.name = "wrong_second";
    row.inputs = {{3, 4}};
    row.call = [factor](const Tensors& in) { return Tensors{apply(WrongSecond{factor}, in[0])}; };
    const std::string fault = check_second_order(row);
    if (factor == 1.0) {
      EXPECT_EQ(fault, "");
    } else {
      EXPECT_NE(fault.find("second gradient by input 0"), std::string::npos) << fault;
    }
  }
}

using Unary = Tensor (*)(const Tensor&);
struct Named {
  const char* name;
  Unary op;
};
constexpr Named kUnary[] = {{"silu", silu}, {"gelu", gelu},         {"gelu_tanh", gelu_tanh},
                            {"exp", exp},   {"softplus", softplus}, {"sigmoid", sigmoid}};

Tensor leaf_of(const Tensor& t, DType dtype) {
  Tensor x = convert(t, dtype);
  set_requires_grad(x);
  return x;
}

TEST(SecondOrder, PointwiseGradientsKeepTheirBits) {
  for (const Named& f : kUnary) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Tensor x = leaf_of(random_tensor({3, 37}, -6, 6, 1), dtype);
      const Tensor dy = convert(random_tensor({3, 37}, -1, 1, 2), dtype);
      const Tensor plain = grad(f.op(x), {x}, {.grad_output = dy})[0];
      const Tensor recorded = grad(f.op(x), {x}, {.create_graph = true, .grad_output = dy})[0];
      EXPECT_TRUE(requires_grad(recorded));
      EXPECT_EQ(compare_bits(f.name, {{plain}, {}}, {{recorded}, {}}), "");
    }
  }
}

TEST(SecondOrder, OfPointwiseOpsInF32IsThatInF64) {
  for (const Named& f : kUnary) {
    Tensor second[2];
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Tensor x = leaf_of(random_tensor({3, 37}, -6, 6, 1), dtype);
      const Tensor first = grad(sum(f.op(x)), {x}, {.create_graph = true})[0];
      second[dtype == DType::f64] = grad(sum(first), {x})[0];
    }
    EXPECT_EQ(compare(f.name, second[0], second[1], {2e-5, 2e-6}), "");
  }
}

TEST(SecondOrder, StaysFiniteFarOut) {
  for (const Named& f : kUnary) {
    if (f.op == static_cast<Unary>(exp)) continue;
    Tensor x = Tensor::empty({6}, DType::f64);
    const double far[] = {-1e300, -1e4, -60, 60, 1e4, 1e300};
    std::copy(std::begin(far), std::end(far), x.mutable_data<double>());
    set_requires_grad(x);
    const Tensor first = grad(sum(f.op(x)), {x}, {.create_graph = true})[0];
    for (const double v : values(grad(sum(first), {x})[0])) EXPECT_NEAR(v, 0, 1e-20) << f.name;
  }
}

TEST(ThirdOrder, OfPointwiseOpsIsOfferedAndTheFourthRefused) {
  for (const Named& f : kUnary) {
    const Tensor x = leaf_of(random_tensor({9}, -3, 3, 4), DType::f64);
    const auto derivative = [&](const Tensor& at, int order, bool graph) {
      Tensor y = f.op(at);
      for (int i = 0; i < order; ++i) {
        y = grad(sum(y), {at}, {.create_graph = graph || i + 1 < order})[0];
      }
      return y;
    };
    const double h = 1e-5;
    const Tensor third = derivative(x, 3, false);
    const Tensor up = leaf_of(add(x.detach(), Tensor::full({}, h, DType::f64)), DType::f64);
    const Tensor down = leaf_of(add(x.detach(), Tensor::full({}, -h, DType::f64)), DType::f64);
    const Tensor want =
        scale(sub(derivative(up, 2, false), derivative(down, 2, false)), 1 / (2 * h));
    EXPECT_EQ(compare(f.name, third, want, {1e-6, 1e-7}), "");
    std::string text;
    try {
      derivative(x, 4, false);
    } catch (const Error& e) {
      text = e.what();
    }
    EXPECT_EQ(text.rfind(std::string(f.name) + ": second derivatives are not offered", 0), 0U)
        << text;
  }
}

}  // namespace
}  // namespace duet::test
