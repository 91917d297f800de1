// The fused coupling against the same written with plain ops, and the facts that follow from its
// equations.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "autograd/node.h"
#include "autograd/saved_tensor.h"
#include "ops/ops.h"
#include "runtime/cpu/parallel.h"
#include "runtime/memory_ops.h"
#include "tests/ops/harness.h"

namespace duet::test {
namespace {

struct Sizes {
  std::int64_t batch, time, query_heads, key_heads, width, hidden, nets;
  int steps;
};

// q and k as views into one buffer [B, T, Hq + 2 Hkv, D], as the model has them; w1, w2, dt.
Tensors make_inputs(const Sizes& s, DType dtype) {
  const Tensor qkv = convert(
      random_tensor({s.batch, s.time, s.query_heads + 2 * s.key_heads, s.width}, -1, 1, 1), dtype);
  const double spread = 1 / std::sqrt(static_cast<double>(s.width));
  return {qkv.slice_view(2, 0, s.query_heads),
          qkv.slice_view(2, s.query_heads, s.query_heads + s.key_heads),
          convert(random_tensor({s.nets, s.hidden, s.width}, -2 * spread, 2 * spread, 2), dtype),
          convert(random_tensor({s.nets, s.width, s.hidden}, -1, 1, 3), dtype),
          convert(random_tensor({s.nets}, 0.05, 0.3, 4), dtype)};
}

Tensors fused(const Tensors& in, int steps) {
  const auto [q, k] = coupling_euler(in[0], in[1], in[2], in[3], in[4], {steps});
  return {q, k};
}

// The same, op by op and head by head.
Tensors composite(const Tensors& in, int steps) {
  const std::int64_t key_heads = in[1].size(2), group = in[0].size(2) / key_heads;
  const std::int64_t hidden = in[2].size(1), width = in[2].size(2);
  Tensors all_q, all_k;
  for (std::int64_t head = 0; head < key_heads; ++head) {
    const std::int64_t net = in[2].size(0) == 1 ? 0 : head;
    const Tensor w1 = reshape(slice(in[2], 0, net, net + 1), {hidden, width});
    const Tensor w2 = reshape(slice(in[3], 0, net, net + 1), {width, hidden});
    const Tensor dt = slice(in[4], 0, net, net + 1);
    Tensors q;
    for (std::int64_t i = head * group; i < (head + 1) * group; ++i) {
      q.push_back(slice(in[0], 2, i, i + 1));
    }
    Tensor k = slice(in[1], 2, head, head + 1);
    for (int n = 0; n < steps; ++n) {
      Tensor total = q[0];
      for (std::size_t i = 1; i < q.size(); ++i) total = add(total, q[i]);
      const Tensor x = scale(total, 1.0 / static_cast<double>(group));
      const Tensor drift = mul(k, dt);
      k = add(k, mul(linear(silu(linear(x, w1)), w2), dt));
      for (Tensor& query : q) query = add(query, drift);
    }
    all_q.insert(all_q.end(), q.begin(), q.end());
    all_k.push_back(k);
  }
  return {cat(all_q, 2), cat(all_k, 2)};
}

OpCase row_of(Tensors (*call)(const Tensors&, int), int steps) {
  OpCase row;
  row.name = "coupling_euler";
  row.call = [=](const Tensors& in) { return call(in, steps); };
  return row;
}

double largest(const Tensor& t) {
  double most = 0;
  for (const double v : values(t)) most = std::max(most, std::abs(v));
  return most;
}

class Parity : public testing::TestWithParam<Sizes> {};

TEST_P(Parity, FusedEqualsComposite) {
  const Sizes s = GetParam();
  const Tensors inputs = make_inputs(s, DType::f64);
  const Tensors cotangents{random_tensor(inputs[0].shape(), -1, 1, 5),
                           random_tensor(inputs[1].shape(), -1, 1, 6)};
  const Result want = run(row_of(composite, s.steps), inputs, cotangents);
  const Result in_f64 = run(row_of(fused, s.steps), inputs, cotangents);
  const Result in_f32 =
      run(row_of(fused, s.steps), make_inputs(s, DType::f32), convert(cotangents, DType::f32));
  const char* names[] = {"q", "k", "w1", "w2", "dt"};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string what = concat("output ", names[i]);
    EXPECT_EQ(compare(what, in_f64.outputs[i], want.outputs[i], {1e-10, 1e-10}), "");
    EXPECT_EQ(compare(what, in_f32.outputs[i], want.outputs[i], {1e-5, 1e-5}), "");
  }
  // A weight's gradient sums over all tokens: its error is measured by its largest element.
  for (std::size_t i = 0; i < 5; ++i) {
    const std::string what = concat("gradient of ", names[i]);
    const double size = std::max(1.0, largest(want.grads[i]));
    EXPECT_EQ(compare(what, in_f64.grads[i], want.grads[i], {1e-10, 1e-10 * size}), "");
    EXPECT_EQ(compare(what, in_f32.grads[i], want.grads[i], {1e-5, 1e-5 * size}), "");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Coupling, Parity,
    testing::Values(Sizes{2, 32, 2, 2, 64, 8, 2, 1}, Sizes{2, 45, 2, 2, 64, 8, 2, 2},
                    Sizes{1, 40, 2, 2, 64, 64, 2, 3}, Sizes{3, 11, 2, 2, 16, 8, 1, 4},
                    Sizes{2, 33, 6, 2, 16, 8, 2, 2}, Sizes{2, 32, 4, 2, 64, 8, 1, 1},
                    Sizes{2, 35, 2, 1, 5, 64, 1, 4}, Sizes{1, 150, 3, 3, 5, 3, 3, 1},
                    Sizes{1, 1, 2, 2, 24, 16, 2, 1}, Sizes{1, 300, 1, 1, 16, 17, 1, 2}));

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = contiguous_copy(a), y = contiguous_copy(b);
  return x.shape() == y.shape() && std::memcmp(x.data<float>(), y.data<float>(), x.nbytes()) == 0;
}

TEST(Coupling, StepOfSizeZeroIsTheIdentityBitForBit) {
  for (const Sizes& s : {Sizes{2, 37, 2, 2, 16, 8, 2, 3}, Sizes{2, 32, 4, 2, 5, 8, 1, 1}}) {
    Tensors in = make_inputs(s, DType::f32);
    in[4] = Tensor::zeros({s.nets}, DType::f32);
    Tensor q = clone(in[0]);
    q.mutable_data<float>()[0] = -0.0F;
    in[0] = q;
    const Tensors cotangents{convert(random_tensor(in[0].shape(), -1, 1, 5), DType::f32),
                             convert(random_tensor(in[1].shape(), -1, 1, 6), DType::f32)};
    Tensor gq = cotangents[0];
    gq.mutable_data<float>()[1] = -0.0F;
    const Result result = run(row_of(fused, s.steps), in, cotangents);
    EXPECT_TRUE(same_bits(result.outputs[0], in[0]));
    EXPECT_TRUE(same_bits(result.outputs[1], in[1]));
    EXPECT_TRUE(same_bits(result.grads[0], cotangents[0]));
    EXPECT_TRUE(same_bits(result.grads[1], cotangents[1]));
    EXPECT_EQ(largest(result.grads[2]), 0);
    EXPECT_EQ(largest(result.grads[3]), 0);
    // dt itself learns from the first step on: d(dt) = n (<gq, k> + <gk, f(q)>).
    const Result want =
        run(row_of(composite, s.steps), convert(in, DType::f64), convert(cotangents, DType::f64));
    EXPECT_EQ(compare("d(dt)", result.grads[4], want.grads[4], {1e-5, 1e-4}), "");
    EXPECT_GT(largest(result.grads[4]), 0.1);
  }
}

TEST(Coupling, InfinitiesPassThroughAStepOfSizeZero) {
  const float inf = std::numeric_limits<float>::infinity();
  Tensors in = make_inputs({1, 8, 1, 1, 8, 8, 1, 1}, DType::f32);
  in[1] = Tensor::full({1, 8, 1, 8}, inf, DType::f32);
  in[4] = Tensor::zeros({1}, DType::f32);
  const Tensors out = fused(in, 1);
  EXPECT_TRUE(same_bits(out[0], in[0]));
  EXPECT_TRUE(same_bits(out[1], in[1]));
}

TEST(Coupling, WithoutForceTheQueryDrifts) {
  for (const int steps : {1, 4}) {
    Tensors in = make_inputs({2, 19, 4, 2, 16, 8, 2, steps}, DType::f64);
    in[3] = Tensor::zeros(in[3].shape(), DType::f64);  // W2 = 0, so f = 0
    const Tensors out = fused(in, steps);
    EXPECT_EQ(compare("k", out[1], in[1], {}), "");
    for (std::int64_t head = 0; head < 4; ++head) {
      const std::int64_t g = head / 2;
      const double n_dt = steps * values(in[4])[static_cast<std::size_t>(g)];
      const Tensor want =
          add(in[0].slice_view(2, head, head + 1), scale(in[1].slice_view(2, g, g + 1), n_dt));
      EXPECT_EQ(compare("q", out[0].slice_view(2, head, head + 1), want, {1e-13, 1e-13}), "");
    }
  }
}

// One step moves the queries as W_q + dt W_k in the place of W_q would, and the keys by dt f(q).
TEST(Coupling, OneStepIsAChangeOfTheQueryProjection) {
  const std::int64_t width = 8;
  const double dt = 0.17;
  const Tensor x = random_tensor({2, 5, 12}, -1, 1, 1);
  const Tensor w_q = random_tensor({width, 12}, -1, 1, 2),
               w_k = random_tensor({width, 12}, -1, 1, 3);
  const Tensor w1 = random_tensor({1, 4, width}, -1, 1, 4),
               w2 = random_tensor({1, width, 4}, -1, 1, 5);
  const Shape heads{2, 5, 1, width};
  const Tensor q = reshape(linear(x, w_q), heads), k = reshape(linear(x, w_k), heads);
  const Tensors out = fused({q, k, w1, w2, Tensor::full({1}, dt, DType::f64)}, 1);
  const Tensor moved = reshape(linear(x, add(w_q, scale(w_k, dt))), heads);
  EXPECT_EQ(compare("q", out[0], moved, {1e-12, 1e-12}), "");
  const Tensor f = linear(silu(linear(q, reshape(w1, {4, width}))), reshape(w2, {width, 4}));
  EXPECT_EQ(compare("k", out[1], add(k, scale(f, dt)), {1e-12, 1e-12}), "");
}

TEST(Coupling, SavedBytesDoNotGrowWithSteps) {
  std::size_t kept[2];
  for (const int i : {0, 1}) {
    Tensors in = make_inputs({2, 16, 2, 2, 16, 8, 2, 1}, DType::f32);
    for (Tensor& t : in) set_requires_grad(t);
    const std::size_t before = saved_bytes();
    const Tensors out = fused(in, i == 0 ? 1 : 7);
    kept[i] = saved_bytes() - before;
  }
  EXPECT_EQ(kept[0], kept[1]);
  EXPECT_EQ(kept[0], 4U * (2 * 2 * 16 * 2 * 16 + 2 * 2 * 8 * 16 + 2));
}

TEST(Coupling, SameBitsForOneAndTwoThreads) {
  const int threads = num_threads();
  for (const Sizes& s : {Sizes{3, 201, 2, 2, 64, 8, 2, 2}, Sizes{3, 201, 4, 2, 16, 8, 1, 1}}) {
    Tensors results[2];
    for (const int n : {1, 2}) {
      set_num_threads(n);
      const Tensors in = make_inputs(s, DType::f32);
      const Tensors cotangents{convert(random_tensor(in[0].shape(), -1, 1, 5), DType::f32),
                               convert(random_tensor(in[1].shape(), -1, 1, 6), DType::f32)};
      const Result r = run(row_of(fused, s.steps), in, cotangents);
      results[n - 1] = r.outputs;
      results[n - 1].insert(results[n - 1].end(), r.grads.begin(), r.grads.end());
    }
    for (std::size_t i = 0; i < 7; ++i) EXPECT_TRUE(same_bits(results[0][i], results[1][i])) << i;
  }
  set_num_threads(threads);
}

// Tokens whose batches do not follow one another at one stride.
TEST(Coupling, BatchesWithAGapBetweenThem) {
  const Tensors wide = make_inputs({3, 50, 2, 2, 16, 8, 2, 2}, DType::f32);
  Tensors gapped = wide, plain = wide;
  for (const std::size_t i : {0, 1}) {
    gapped[i] = wide[i].slice_view(1, 3, 48);
    plain[i] = clone(gapped[i]);
  }
  const Tensors got = fused(gapped, 2), want = fused(plain, 2);
  EXPECT_TRUE(same_bits(got[0], want[0]));
  EXPECT_TRUE(same_bits(got[1], want[1]));
}

TEST(Coupling, GradientOfOneOutputAlone) {
  for (const std::size_t used : {0, 1}) {
    for (const std::int64_t query_heads : {2, 4}) {
      Tensors grads[2];
      for (const int fuse : {0, 1}) {
        Tensors in = make_inputs({1, 21, query_heads, 2, 16, 8, 2, 2}, DType::f64);
        for (Tensor& t : in) set_requires_grad(t);
        const Tensor y = (fuse != 0 ? fused(in, 2) : composite(in, 2))[used];
        backward(y, random_tensor(y.shape(), -1, 1, 9));
        for (const Tensor& t : in) grads[fuse].push_back(grad(t));
      }
      for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(compare("gradient", grads[1][i], grads[0][i], {1e-10, 1e-10}), "") << i;
      }
    }
  }
}

TEST(Coupling, SecondBackwardAddsIntoTheLeavesBuffers) {
  Tensors in = make_inputs({1, 40, 2, 2, 16, 8, 2, 1}, DType::f64);
  for (std::size_t i = 2; i < 5; ++i) set_requires_grad(in[i]);
  const auto step = [&] {
    const Tensors out = fused(in, 1);
    backward(weighted_sum(
        out, {random_tensor(out[0].shape(), -1, 1, 5), random_tensor(out[1].shape(), -1, 1, 6)}));
  };
  step();
  Tensors once;
  std::vector<const double*> buffers;
  for (std::size_t i = 2; i < 5; ++i) {
    once.push_back(clone(grad(in[i])));
    buffers.push_back(grad(in[i]).data<double>());
  }
  step();
  for (std::size_t i = 2; i < 5; ++i) {
    EXPECT_EQ(grad(in[i]).data<double>(), buffers[i - 2]);
    EXPECT_EQ(compare("gradient", grad(in[i]), scale(once[i - 2], 2), {1e-14, 1e-14}), "");
  }
}

TEST(Coupling, NanStaysInItsToken) {
  for (const std::int64_t width : {5, 16}) {
    Tensors in = make_inputs({1, 70, 2, 2, width, 8, 2, 1}, DType::f32);
    Tensor q = clone(in[0]);
    q.mutable_data<float>()[33 * 2 * width + 1] = std::nanf("");  // token 33, head 0
    in[0] = q;
    const Tensors out = fused(in, 2);
    for (const Tensor& t : out) {
      const std::vector<double> v = values(t);
      for (std::size_t i = 0; i < v.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i) / width;
        ASSERT_TRUE(row == 33 * 2 || std::isfinite(v[i])) << i;
      }
    }
    EXPECT_TRUE(std::isnan(values(out[1])[static_cast<std::size_t>(33 * 2 * width)]));
  }
}

TEST(Coupling, ErrorsNameTheShapes) {
  const Tensors in = make_inputs({1, 2, 4, 2, 8, 3, 2, 1}, DType::f32);
  const auto message = [&](std::size_t i, const Shape& shape) {
    Tensors bad = in;
    bad[i] = Tensor::zeros(shape, DType::f32);
    try {
      fused(bad, 1);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message(0, {1, 2, 3, 8}),
            "coupling_euler: 3 query heads do not share 2 key heads evenly; got q [1, 2, 3, 8], k "
            "[1, 2, 2, 8]");
  EXPECT_EQ(message(1, {1, 3, 2, 8}),
            "coupling_euler: k is [1, 3, 2, 8], expected [1, 2, Hkv, 8], as q [1, 2, 4, 8]");
  EXPECT_EQ(message(2, {3, 3, 8}), "coupling_euler: w1 is [3, 3, 8], expected [2 or 1, h, 8]");
  EXPECT_EQ(message(3, {2, 3, 8}),
            "coupling_euler: w2 is [2, 3, 8], expected [2, 8, 3], as w1 is [2, 3, 8]");
  EXPECT_EQ(message(4, {1}), "coupling_euler: dt is [1], expected [2], one per net");
  EXPECT_THROW(fused(in, 0), Error);
}

}  // namespace
}  // namespace duet::test
