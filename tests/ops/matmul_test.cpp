// matmul and linear on the shapes and strides where such code goes wrong.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "autograd/node.h"
#include "autograd/saved_tensor.h"
#include "ops/ops.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/parallel.h"
#include "runtime/memory_ops.h"
#include "runtime/random.h"

namespace duet {
namespace {

Tensor random(const Shape& shape, DType dtype, std::uint32_t stream) {
  Tensor t = Tensor::empty(shape, dtype);
  fill_uniform(t, {.seed = 7, .layer = stream, .use = kUseTest}, -1.0, 1.0);
  return t;
}

// Integers in [-4, 4]: products must be exact in any order.
Tensor integers(const Shape& shape, DType dtype, std::uint32_t stream) {
  Tensor t = Tensor::empty(shape, dtype);
  visit_floating(dtype, "test", [&]<class T>(TypeTag<T>) {
    T* p = t.mutable_data<T>();
    for (std::int64_t i = 0; i < t.numel(); ++i) {
      const RandomKey key{.seed = 9, .layer = stream, .use = kUseTest};
      p[i] = static_cast<T>(random_u32(key, static_cast<std::uint64_t>(i)) % 9U) - T{4};
    }
  });
  return t;
}

// The elements in row-major order, whatever the strides.
std::vector<double> values(const Tensor& t) {
  std::vector<double> out;
  visit_floating(t.dtype(), "test", [&]<class T>(TypeTag<T>) {
    const T* p = t.data<T>();
    for (std::int64_t i = 0; i < t.numel(); ++i) {
      std::int64_t rest = i;
      std::int64_t offset = 0;
      for (int d = t.ndim() - 1; d >= 0; --d) {
        offset += rest % t.shape()[d] * t.strides()[d];
        rest /= t.shape()[d];
      }
      out.push_back(static_cast<double>(p[offset]));
    }
  });
  return out;
}

double at(const Tensor& t, std::int64_t index) {
  return values(t)[static_cast<std::size_t>(index)];
}

// a @ b by the definition, operands expanded to the same leading dimensions.
std::vector<double> naive(const Tensor& a, const Tensor& b, const Shape& lead) {
  const std::int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  Shape sa = lead, sb = lead;
  for (const std::int64_t d : {m, k}) sa.push_back(d);
  for (const std::int64_t d : {k, n}) sb.push_back(d);
  const std::vector<double> va = values(a.expand_view(sa)), vb = values(b.expand_view(sb));
  std::vector<double> out;
  for (std::int64_t batch = 0; batch < lead.numel(); ++batch) {
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < k; ++l) {
          sum += va[static_cast<std::size_t>((batch * m + i) * k + l)] *
                 vb[static_cast<std::size_t>((batch * k + l) * n + j)];
        }
        out.push_back(sum);
      }
    }
  }
  return out;
}

void expect_near(const Tensor& y, const std::vector<double>& expected, double tolerance) {
  const std::vector<double> got = values(y);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], tolerance) << "element " << i << " of " << y.shape();
  }
}

void expect_all(const Tensor& y, double value) {
  expect_near(y, std::vector<double>(static_cast<std::size_t>(y.numel()), value), 0);
}

std::vector<double> doubled(std::vector<double> v) {
  for (double& x : v) x *= 2;
  return v;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// Views of the same matrix shape [rows, columns] with every layout that reaches a product.
std::vector<Tensor> layouts(std::int64_t rows, std::int64_t columns, DType dtype,
                            std::uint32_t stream) {
  std::vector<Tensor> views;
  views.push_back(integers({rows, columns}, dtype, stream));
  views.push_back(integers({columns, rows}, dtype, stream + 1).transpose_view(0, 1));
  views.push_back(integers({rows, columns + 3}, dtype, stream + 2).slice_view(1, 2, columns + 2));
  views.push_back(
      integers({rows, 2 * columns}, dtype, stream + 3).slice_view(1, 0, 2 * columns, 2));
  views.push_back(integers({2 * rows, columns}, dtype, stream + 4).slice_view(0, 1, 2 * rows, 2));
  views.push_back(integers({1, columns}, dtype, stream + 5).expand_view({rows, columns}));
  views.push_back(integers({rows, 1}, dtype, stream + 6).expand_view({rows, columns}));
  return views;
}

class Matmul : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Matmul, testing::Values(DType::f32, DType::f64),
                         [](const auto& row) { return std::string(name(row.param)); });

TEST_P(Matmul, EveryLayoutIsExactOnIntegers) {
  for (const auto& [m, k, n] : std::vector<std::array<std::int64_t, 3>>{
           {1, 1, 1}, {1, 5, 3}, {4, 1, 1}, {3, 7, 1}, {5, 1, 6}, {17, 33, 9}, {70, 65, 130}}) {
    for (const Tensor& a : layouts(m, k, GetParam(), 1)) {
      for (const Tensor& b : layouts(k, n, GetParam(), 20)) {
        expect_near(matmul(a, b), naive(a, b, {}), 0);
      }
    }
  }
}

TEST_P(Matmul, LeadingDimensionsBroadcast) {
  const DType t = GetParam();
  const std::vector<std::array<Shape, 3>> rows{
      {Shape{2, 3, 4, 5}, Shape{2, 3, 5, 6}, Shape{2, 3}},
      {Shape{2, 3, 4, 5}, Shape{5, 6}, Shape{2, 3}},
      {Shape{4, 5}, Shape{2, 3, 5, 6}, Shape{2, 3}},
      {Shape{2, 1, 4, 5}, Shape{3, 5, 6}, Shape{2, 3}},
      {Shape{1, 3, 1, 5}, Shape{2, 1, 5, 1}, Shape{2, 3}},
      {Shape{1, 1, 4, 5}, Shape{1, 5, 6}, Shape{1, 1}},
  };
  for (const auto& [sa, sb, lead] : rows) {
    const Tensor a = integers(sa, t, 1), b = integers(sb, t, 2);
    expect_near(matmul(a, b), naive(a, b, lead), 0);
  }
  // Both expanded along the same dimension, and heads taken out of [B, T, H, D].
  const Tensor a = integers({1, 4, 5}, t, 1).expand_view({3, 4, 5});
  const Tensor b = integers({1, 5, 2}, t, 2).expand_view({3, 5, 2});
  expect_near(matmul(a, b), naive(a, b, {3}), 0);
  const Tensor q = integers({2, 6, 3, 4}, t, 3).transpose_view(1, 2);
  const Tensor k = integers({2, 6, 3, 4}, t, 4).transpose_view(1, 2).transpose_view(-1, -2);
  expect_near(matmul(q, k), naive(q, k, {2, 3}), 0);
}

TEST_P(Matmul, GradientsAreExactOnIntegers) {
  const DType t = GetParam();
  for (const auto& [sa, sb] : std::vector<std::array<Shape, 2>>{{Shape{3, 4, 5}, Shape{5, 2}},
                                                                {Shape{4, 5}, Shape{3, 5, 2}},
                                                                {Shape{3, 4, 5}, Shape{3, 5, 2}},
                                                                {Shape{2, 1, 4, 5}, Shape{3, 5, 2}},
                                                                {Shape{4, 5}, Shape{5, 2}}}) {
    Tensor a = integers(sa, t, 1), b = integers(sb, t, 2);
    set_requires_grad(a);
    set_requires_grad(b);
    const Tensor y = matmul(a, b);
    const Tensor dy = integers(y.shape(), t, 3);
    backward(y, dy);
    // da = sum over the broadcast of dy b^T: by the definition on expanded operands.
    Shape lead;
    for (int d = 0; d + 2 < y.ndim(); ++d) lead.push_back(y.shape()[d]);
    const auto reduce = [&](const std::vector<double>& full, const Tensor& x) {
      Shape padded = Dims::filled(y.ndim() - x.ndim(), 1), full_shape = lead;
      for (const std::int64_t d : x.shape()) padded.push_back(d);
      for (const std::int64_t d : {x.size(-2), x.size(-1)}) full_shape.push_back(d);
      std::vector<double> sum(static_cast<std::size_t>(x.numel()));
      for (std::size_t i = 0; i < full.size(); ++i) {
        std::int64_t rest = static_cast<std::int64_t>(i), target = 0, step = 1;
        for (int d = y.ndim() - 1; d >= 0; --d) {
          target += padded[d] == 1 ? 0 : rest % full_shape[d] * step;
          rest /= full_shape[d];
          step *= padded[d];
        }
        sum[static_cast<std::size_t>(target)] += full[i];
      }
      return sum;
    };
    const std::vector<double> da = reduce(naive(dy, b.transpose_view(-1, -2), lead), a);
    const std::vector<double> db = reduce(naive(a.transpose_view(-1, -2), dy, lead), b);
    expect_near(grad(a), da, 0);
    expect_near(grad(b), db, 0);
    // A second backward adds into the leaves' buffers and allocates no other gradient.
    const void* buffer = grad(a).storage().get();
    backward(matmul(a, b), dy);
    EXPECT_EQ(grad(a).storage().get(), buffer);
    expect_near(grad(a), doubled(da), 0);
    expect_near(grad(b), doubled(db), 0);
  }
}

TEST_P(Matmul, SameTensorTwiceAndExpandedGradient) {
  Tensor x = integers({3, 3}, GetParam(), 1);
  set_requires_grad(x);
  const Tensor ones = Tensor::full({1, 1}, 1.0, GetParam()).expand_view({3, 3});
  backward(matmul(x, x), ones);
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 3; ++j) {
      double expected = 0;  // row sum of x[j, :] + column sum of x[:, i]
      for (std::int64_t l = 0; l < 3; ++l) expected += at(x, j * 3 + l) + at(x, l * 3 + i);
      EXPECT_EQ(at(grad(x), i * 3 + j), expected);
    }
  }
}

// An inner size of 0 once returned old memory elsewhere: so poison what the pool hands out.
TEST_P(Matmul, ZeroSizes) {
  const DType t = GetParam();
  { Tensor::full({4, 4}, std::nan(""), t); }
  const Tensor y = matmul(Tensor::empty({4, 0}, t), Tensor::empty({0, 4}, t));
  ASSERT_EQ(concat(y.shape()), "[4, 4]");
  expect_all(y, 0.0);
  EXPECT_EQ(concat(matmul(Tensor::empty({0, 3}, t), random({3, 2}, t, 1)).shape()), "[0, 2]");
  EXPECT_EQ(concat(matmul(random({2, 3}, t, 1), Tensor::empty({3, 0}, t)).shape()), "[2, 0]");
  EXPECT_EQ(concat(matmul(Tensor::empty({0, 2, 3}, t), random({3, 2}, t, 1)).shape()), "[0, 2, 2]");

  // A gradient along a broadcast over nothing is zero, not missing.
  Tensor w = random({3, 2}, t, 2);
  set_requires_grad(w);
  for (const Shape& shape : {Shape{0, 4, 3}, Shape{4, 0, 3}}) {
    const Tensor out = matmul(Tensor::empty(shape, t), w);
    { Tensor::full({3, 2}, std::nan(""), t); }
    backward(out, Tensor::empty(out.shape(), t));
    ASSERT_TRUE(grad(w).defined());
    expect_all(grad(w), 0.0);
    set_grad(w, {});
  }
  Tensor bias = random({2}, t, 3);
  set_requires_grad(bias);
  const Tensor z = linear(Tensor::empty({5, 0}, t), Tensor::empty({2, 0}, t), bias);
  for (std::int64_t i = 0; i < 10; ++i) EXPECT_EQ(at(z, i), at(bias, i % 2));
  backward(z, Tensor::full({5, 2}, 1.0, t));
  expect_all(grad(bias), 5.0);
  EXPECT_EQ(concat(linear(Tensor::empty({0, 3}, t), random({2, 3}, t, 1), bias).shape()), "[0, 2]");
}

TEST_P(Matmul, LinearForwardAndBackwardOnEveryLayout) {
  const DType t = GetParam();
  for (const Tensor& x : layouts(6, 5, t, 1)) {
    for (const Tensor& w : layouts(7, 5, t, 30)) {
      Tensor bias = integers({7}, t, 60), weight = w.detach(), input = x.detach();
      for (Tensor* leaf : {&bias, &weight, &input}) set_requires_grad(*leaf);
      const Tensor y = linear(input, weight, bias);
      std::vector<double> expected = naive(x, w.transpose_view(0, 1), {});
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] += at(bias, static_cast<std::int64_t>(i) % 7);
      }
      expect_near(y, expected, 0);
      const Tensor dy = integers({7, 6}, t, 61).transpose_view(0, 1);
      backward(y, dy);
      expect_near(grad(input), naive(dy, w, {}), 0);
      expect_near(grad(weight), naive(dy.transpose_view(0, 1), x, {}), 0);
      expect_near(grad(bias), naive(Tensor::full({1, 6}, 1.0, t), dy, {}), 0);
    }
  }
}

TEST_P(Matmul, LinearAddsIntoTheWeightsGradient) {
  Tensor w = integers({3, 4}, GetParam(), 1);
  set_requires_grad(w);
  const Tensor x = integers({2, 5, 4}, GetParam(), 2), dy = integers({2, 5, 3}, GetParam(), 3);
  backward(linear(x, w), dy);
  const Tensor once = clone(grad(w));
  const void* buffer = grad(w).storage().get();
  backward(linear(x, w), dy);
  EXPECT_EQ(grad(w).storage().get(), buffer);
  expect_near(grad(w), doubled(values(once)), 0);
}

// y, and the gradients of those inputs that want one.
std::vector<std::vector<double>> run_layer(
    const std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>& layer,
    const std::array<Tensor, 3>& in, const Tensor& dy, unsigned wanted, std::size_t* saved) {
  std::vector<Tensor> leaves;
  for (const Tensor& t : in) leaves.push_back(t.defined() ? t.detach() : Tensor());
  for (std::size_t i = 0; i < 3; ++i) {
    if (leaves[i].defined() && (wanted >> i & 1U) != 0) set_requires_grad(leaves[i]);
  }
  const std::size_t before = saved_bytes();
  const Tensor y = layer(leaves[0], leaves[1], leaves[2]);
  *saved = saved_bytes() - before;
  std::vector<std::vector<double>> all{values(y)};
  if (!requires_grad(y)) return all;
  backward(y, dy);
  for (const Tensor& t : leaves) {
    if (t.defined() && requires_grad(t) && grad(t).defined()) all.push_back(values(grad(t)));
  }
  return all;
}

TEST_P(Matmul, LinearGeluTanhHasTheBitsAndTheSavedBytesOfItsParts) {
  const DType t = GetParam();
  const auto parts = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return gelu_tanh(linear(x, w, b));
  };
  const auto fused = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return linear_gelu_tanh(x, w, b);
  };
  const Tensor dy = random({2, 9, 24}, t, 4);
  for (const Tensor& x : {random({2, 9, 17}, t, 1), random({9, 2, 17}, t, 1).transpose_view(0, 1),
                          random({2, 9, 34}, t, 1).slice_view(2, 1, 18)}) {
    for (const Tensor& bias : {random({24}, t, 3), Tensor()}) {
      for (unsigned wanted = 0; wanted < 8; ++wanted) {
        const std::array<Tensor, 3> in{x, random({24, 17}, t, 2), bias};
        std::size_t saved_of_parts = 0, saved = 0;
        EXPECT_EQ(run_layer(parts, in, dy, wanted, &saved_of_parts),
                  run_layer(fused, in, dy, wanted, &saved))
            << x.strides() << ' ' << wanted;
        EXPECT_EQ(saved, saved_of_parts) << wanted;
      }
    }
  }
}

TEST(MatmulErrors, NameTheOpAndTheShapes) {
  const auto f32 = [](const Shape& s) { return Tensor::zeros(s, DType::f32); };
  EXPECT_EQ(error_of([&] {
              matmul(f32({8, 512}), f32({256, 64}));
            }),
            "matmul: inner dimensions differ: a is [8, 512], b is [256, 64] (a.size(-1)=512, "
            "b.size(-2)=256)");
  EXPECT_EQ(error_of([&] {
              matmul(f32({8}), f32({8, 2}));
            }),
            "matmul: expected two or more dimensions: a is [8], b is [8, 2]; reshape a vector to "
            "[1, K] or [K, 1]");
  EXPECT_NE(error_of([&] {
              matmul(f32({2, 3, 4}), f32({3, 4, 2}));
            }).find("matmul"),
            std::string::npos);
  EXPECT_EQ(error_of([&] {
              matmul(f32({2, 2}), Tensor::zeros({2, 2}, DType::f64));
            }),
            "matmul: dtypes differ: a is f32, b is f64; convert one of them");
  EXPECT_EQ(error_of([&] {
              linear(f32({2, 3}), f32({4, 5}));
            }),
            "linear: inner dimensions differ: x is [2, 3], weight is [4, 5] (the last size of both "
            "must be equal)");
  EXPECT_EQ(error_of([&] {
              linear(f32({2, 5}), f32({4, 5}), f32({5}));
            }),
            "linear: bias is [5], expected [4]");
  EXPECT_EQ(error_of([&] {
              linear_gelu_tanh(f32({2, 3}), f32({4, 5}));
            }),
            "linear_gelu_tanh: inner dimensions differ: x is [2, 3], weight is [4, 5] (the last "
            "size of both must be equal)");
  EXPECT_EQ(error_of([&] {
              linear_gelu_tanh(f32({2, 5}), f32({4, 5}), f32({5}));
            }),
            "linear_gelu_tanh: bias is [5], expected [4]");
}

TEST(MatmulMeta, AllocatesAndRunsNothing) {
  Tensor w = Tensor::empty({6, 4}, DType::f32, kMeta);
  set_requires_grad(w);
  const Tensor y = linear(Tensor::empty({2, 3, 4}, DType::f32, kMeta), w);
  EXPECT_EQ(concat(y.shape()), "[2, 3, 6]");
  backward(y, Tensor::empty(y.shape(), DType::f32, kMeta));
  EXPECT_EQ(concat(grad(w).shape()), "[6, 4]");
}

TEST(Onednn, RunsFastKernelsAtTransformerShapes) {
  const Tensor x = Tensor::zeros({256, 512}, DType::f32), w = Tensor::zeros({64, 512}, DType::f32);
  Tensor y = Tensor::empty({256, 64}, DType::f32), dw = Tensor::zeros({64, 512}, DType::f32);
  const ConstView wt = w.transpose_view(0, 1).view();
  const ConstView dyt = y.transpose_view(0, 1).view();
  for (const std::string& kernel :
       {onednn_implementation(x.view(), wt, y.mutable_view()),
        onednn_implementation(y.view(), w.view(), Tensor::empty_like(x).mutable_view()),
        onednn_implementation(dyt, x.view(), dw.mutable_view(), {.accumulate = true})}) {
    EXPECT_FALSE(kernel.starts_with("ref")) << kernel << " in oneDNN " << onednn_version();
  }
}

// Lines of operands that lie a multiple of 512 bytes apart are copied in blocks of the inner size;
// exact on integers, so against f64 to the last bit.
TEST(Onednn, CollidingLinesGiveTheSameProduct) {
  const std::int64_t k = 2500;  // more than one block
  const auto f64 = [](const Tensor& t) {
    Tensor out = Tensor::empty(t.shape(), DType::f64);
    copy(out, t);
    return out;
  };
  const Tensor x = integers({k, 256}, DType::f32, 1), y = integers({k, 384}, DType::f32, 2);
  const Tensor wide = integers({k, 512}, DType::f32, 3);
  const Tensor left = x.transpose_view(0, 1);            // lines along K collide
  const Tensor odd = integers({256, k}, DType::f32, 4);  // rows, no lines along K
  const Tensor part = wide.slice_view(1, 100, 300);      // lines inside wider ones
  for (const Tensor& a : {left, odd, part.transpose_view(0, 1)}) {
    for (const Tensor& b : {y, part}) {
      expect_near(matmul(a, b), values(matmul(f64(a), f64(b))), 0);
      Tensor sum = Tensor::full({a.size(0), b.size(1)}, 1.0, DType::f32);
      std::vector<std::byte> scratch(
          gemm_scratch_bytes(a.view(), b.view(), sum.mutable_view(), {.accumulate = true}));
      gemm(a.view(), b.view(), sum.mutable_view(), {.accumulate = true, .scratch = scratch});
      std::vector<double> expected = values(matmul(f64(a), f64(b)));
      for (double& v : expected) v += 1;
      expect_near(sum, expected, 0);
    }
  }
  const Tensor bias = integers({384}, DType::f32, 5);
  const Tensor weight = y.transpose_view(0, 1);
  expect_near(linear(odd, weight, bias), values(linear(f64(odd), f64(weight), f64(bias))), 0);
}

TEST(Onednn, InsideAParallelRegionAndOverManyShapes) {
  const Tensor a = integers({40, 64}, DType::f32, 1), b = integers({64, 40}, DType::f32, 2);
  const std::vector<double> expected = naive(a, b, {});
  Tensor out = Tensor::empty({8, 40, 40}, DType::f32);
  const View all = out.mutable_view();
  parallel_chunks(8, [&](std::int64_t i) {
    const View c{all.as<float>() + i * 1600, DType::f32, {40, 40}, {40, 1}};
    std::vector<std::byte> scratch(gemm_scratch_bytes(a.view(), b.view(), c));
    gemm(a.view(), b.view(), c, {.scratch = scratch});
  });
  for (std::int64_t i = 0; i < 8; ++i) {
    expect_near(out.slice_view(0, i, i + 1).reshape_view({40, 40}), expected, 0);
  }
  // More shapes than the cache keeps: it starts over, and never grows without bound or throws.
  for (std::int64_t k = 1; k <= 1100; ++k) {
    const Tensor x = Tensor::full({1, k}, 1.0, DType::f32), y = x.transpose_view(0, 1);
    ASSERT_EQ(matmul(x, y).item(), static_cast<double>(k));
  }
}

}  // namespace
}  // namespace duet
