// rms_norm and layer_norm at their edges: large means, constant and huge rows, buffers to add into,
// threads; and fused with the residual sum.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "autograd/node.h"
#include "ops/ops.h"
#include "runtime/cpu/parallel.h"
#include "runtime/memory_ops.h"
#include "runtime/random.h"

namespace duet::test {
namespace {

Tensor from(const Shape& shape, const std::vector<float>& values) {
  Tensor t = Tensor::empty(shape, DType::f32);
  std::copy(values.begin(), values.end(), t.mutable_data<float>());
  return t;
}

Tensor wave(const Shape& shape, DType dtype, double frequency, double mean = 0) {
  Tensor t = Tensor::empty(shape, dtype);
  visit_floating(dtype, "wave", [&]<class T>(TypeTag<T>) {
    T* p = t.mutable_data<T>();
    for (std::int64_t i = 0; i < t.numel(); ++i) {
      p[i] = static_cast<T>(mean + 1.4 * std::sin(frequency * static_cast<double>(i * i + 1)));
    }
  });
  return t;
}

Tensor ones(std::int64_t n) { return Tensor::full({n}, 1.0, DType::f32); }
Tensor zeros(std::int64_t n) { return Tensor::zeros({n}, DType::f32); }

using Tensors = std::vector<Tensor>;

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         (a.numel() == 0 || std::memcmp(a.view().data, b.view().data, a.nbytes()) == 0);
}

TEST(LayerNorm, MeanFarFromZero) {
  const Tensor x = wave({5, 64}, DType::f32, 0.7, 2000);
  const Tensor y = layer_norm(x, ones(64), zeros(64));
  for (std::int64_t i = 0; i < 5; ++i) {
    const float* row = y.data<float>() + i * 64;
    double mean = 0, variance = 0;
    for (int j = 0; j < 64; ++j) mean += row[j] / 64.0;
    for (int j = 0; j < 64; ++j) variance += (row[j] - mean) * (row[j] - mean) / 64.0;
    EXPECT_NEAR(mean, 0, 1e-6);
    EXPECT_NEAR(variance, 1, 1e-4);
  }
}

TEST(LayerNorm, KnownRow) {
  const Tensor y = layer_norm(from({1, 4}, {40000, 40001, 40002, 40003}), ones(4), zeros(4));
  const float want[] = {-1.3416355F, -0.4472118F, 0.4472118F, 1.3416355F};
  for (int j = 0; j < 4; ++j) EXPECT_NEAR(y.data<float>()[j], want[j], 2e-6);
}

TEST(LayerNorm, ConstantRowGivesExactlyTheBias) {
  for (const float value : {1234.0F, 0.1F, -3e5F, 7.0e-20F, 0.0F}) {
    for (const std::int64_t width : {1, 3, 8, 256, 301}) {
      const Tensor bias = wave({width}, DType::f32, 0.3);
      const Tensor x = Tensor::full({2, width}, value, DType::f32);
      const Tensor y = layer_norm(x, ones(width), bias);
      for (std::int64_t i = 0; i < 2 * width; ++i) {
        ASSERT_EQ(y.data<float>()[i], bias.data<float>()[i % width]) << value << " x " << width;
      }
    }
  }
}

TEST(Norms, HugeRowsStayFinite) {
  const Tensor unit = wave({2, 40}, DType::f32, 0.9);
  Tensor huge = clone(unit);
  for (std::int64_t i = 0; i < 80; ++i) huge.mutable_data<float>()[i] *= 1e30F;
  const Tensor bias = zeros(40);
  const Tensor small_layer = layer_norm(unit, ones(40), bias, 0);
  const Tensor small_rms = rms_norm(unit, ones(40), 0);
  set_requires_grad(huge);
  const Tensor layer = layer_norm(huge, ones(40), bias);
  const Tensor rms = rms_norm(huge, ones(40));
  for (std::int64_t i = 0; i < 80; ++i) {
    EXPECT_NEAR(layer.data<float>()[i], small_layer.data<float>()[i], 1e-5);
    EXPECT_NEAR(rms.data<float>()[i], small_rms.data<float>()[i], 1e-5);
  }
  for (const Tensor& y : {layer, rms}) {
    backward(y, wave({2, 40}, DType::f32, 0.2));
    for (std::int64_t i = 0; i < 80; ++i) EXPECT_TRUE(std::isfinite(grad(huge).data<float>()[i]));
  }
}

TEST(Norms, NanInARowStaysInThatRow) {
  Tensor x = wave({3, 20}, DType::f32, 0.9);
  x.mutable_data<float>()[20 + 7] = std::nanf("");
  for (const Tensor& y : {layer_norm(x, ones(20), zeros(20)), rms_norm(x, ones(20))}) {
    for (std::int64_t i = 0; i < 60; ++i) {
      EXPECT_EQ(std::isnan(y.data<float>()[i]), i / 20 == 1) << i;
    }
  }
}

// A second backward adds to the weight's gradient; a rank-3 input is [B * T] rows of C.
TEST(Norms, BackwardAddsIntoTheLeafsBuffer) {
  Tensor x = wave({2, 3, 8}, DType::f32, 0.8);
  Tensor weight = wave({8}, DType::f32, 0.4), bias = wave({8}, DType::f32, 0.6);
  const Tensor dy = wave({2, 3, 8}, DType::f32, 0.35);
  set_requires_grad(weight);
  set_requires_grad(bias);
  const auto step = [&] {
    backward(layer_norm(x, weight, bias), dy);
    backward(rms_norm(x, weight), dy);
  };
  step();
  const Tensor once_w = clone(grad(weight)), once_b = clone(grad(bias));
  const void* buffer = grad(weight).data<float>();
  step();
  EXPECT_EQ(grad(weight).data<float>(), buffer);
  for (int j = 0; j < 8; ++j) {
    EXPECT_NEAR(grad(weight).data<float>()[j], 2 * once_w.data<float>()[j], 1e-5);
    EXPECT_NEAR(grad(bias).data<float>()[j], 2 * once_b.data<float>()[j], 1e-5);
    double want = 0;
    for (int i = 0; i < 6; ++i) want += dy.data<float>()[i * 8 + j];
    EXPECT_NEAR(once_b.data<float>()[j], want, 1e-5);
  }
}

TEST(Norms, SameBitsForOneAndTwoThreads) {
  const int threads = num_threads();
  Tensor results[2][5];
  for (const int n : {1, 2}) {
    set_num_threads(n);
    Tensor x = wave({515, 67}, DType::f32, 0.8);
    Tensor weight = wave({67}, DType::f32, 0.4), bias = wave({67}, DType::f32, 0.6);
    for (Tensor* t : {&x, &weight, &bias}) set_requires_grad(*t);
    const Tensor dy = wave({515, 67}, DType::f32, 0.35);
    const Tensor layer = layer_norm(x, weight, bias), rms = rms_norm(x, weight);
    backward(layer, dy);
    backward(rms, dy);
    Tensor* r = results[n - 1];
    r[0] = layer, r[1] = rms, r[2] = grad(x), r[3] = grad(weight), r[4] = grad(bias);
  }
  set_num_threads(threads);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(same_bits(results[0][i], results[1][i])) << i;
}

// The fused ops beside the ops they fuse: outputs and gradients, with the sum used on as well.
TEST(AddNorms, HaveTheBitsOfAddAndNorm) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Shape& shape : {Shape{515, 67}, Shape{2, 3, 256}, Shape{4, 1}, Shape{0, 8}}) {
      for (const bool layer : {false, true}) {
        Tensors results[2];
        for (const bool fused : {false, true}) {
          const std::int64_t width = shape.back();
          Tensor x = wave(shape, dtype, 0.8, 3), delta = wave(shape, dtype, 0.5);
          Tensor weight = wave({width}, dtype, 0.4), bias = wave({width}, dtype, 0.6);
          for (Tensor* t : {&x, &delta, &weight, &bias}) set_requires_grad(*t);
          Tensor sum, y;
          if (fused) {
            const auto out =
                layer ? add_layer_norm(x, delta, weight, bias) : add_rms_norm(x, delta, weight);
            sum = out[0], y = out[1];
          } else {
            sum = add(x, delta);
            y = layer ? layer_norm(sum, weight, bias) : rms_norm(sum, weight);
          }
          // As in a block: the branch behind the norm, and the stream that goes on.
          backward(add(sum, mul(y, wave(shape, dtype, 0.9))), wave(shape, dtype, 0.35));
          results[fused] = {sum, y, grad(x), grad(delta), grad(weight)};
          if (layer) results[fused].push_back(grad(bias));
        }
        for (std::size_t i = 0; i < results[0].size(); ++i) {
          EXPECT_TRUE(same_bits(results[0][i], results[1][i])) << dtype << shape << layer << i;
        }
      }
    }
  }
}

// A gradient that arrives at one output alone.
TEST(AddNorms, EitherOutputMayBeUnused) {
  const Shape shape{3, 8};
  const Tensor d = wave(shape, DType::f32, 0.35);
  for (const bool layer : {false, true}) {
    const auto leaves = [&] {
      Tensors in{wave(shape, DType::f32, 0.8), wave(shape, DType::f32, 0.5),
                 wave({8}, DType::f32, 0.4)};
      for (Tensor& t : in) set_requires_grad(t);
      return in;
    };
    const auto outputs = [&](const Tensors& in) {
      return layer ? add_layer_norm(in[0], in[1], in[2], {}) : add_rms_norm(in[0], in[1], in[2]);
    };
    const Tensors of_sum = leaves();
    backward(outputs(of_sum)[0], d);
    EXPECT_TRUE(same_bits(grad(of_sum[0]), d));
    EXPECT_TRUE(same_bits(grad(of_sum[1]), d));
    EXPECT_FALSE(grad(of_sum[2]).defined());

    const Tensors of_norm = leaves(), apart = leaves();
    backward(outputs(of_norm)[1], d);
    const Tensor sum = add(apart[0], apart[1]);
    backward(layer ? layer_norm(sum, apart[2], {}) : rms_norm(sum, apart[2]), d);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(grad(of_norm[i]), grad(apart[i]))) << i;
  }
}

TEST(Norms, ErrorsNameTheShapes) {
  const Tensor x = zeros(6).reshape_view({2, 3});
  const auto message = [](auto&& f) {
    try {
      f();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message([&] { rms_norm(x, ones(5)); }),
            "rms_norm: weight is [5], expected [3], the last size of x [2, 3]");
  EXPECT_EQ(message([&] { layer_norm(x, ones(3), ones(2)); }),
            "layer_norm: bias is [2], expected [3], the last size of x [2, 3]");
  EXPECT_EQ(
      message([&] { add_layer_norm(x, ones(3), ones(3), ones(3)); }),
      "add_layer_norm: delta is [3], expected [2, 3], the shape of x; nothing broadcasts here");
  EXPECT_EQ(message([&] { add_rms_norm(x, x, ones(5)); }),
            "add_rms_norm: weight is [5], expected [3], the last size of x [2, 3]");
  EXPECT_EQ(message([&] { rms_norm(x, ones(3), -1); }), "rms_norm: eps is -1, expected 0 or more");
}

}  // namespace
}  // namespace duet::test
