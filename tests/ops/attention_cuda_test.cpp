// attention on the GPU where the rows of the table do not lead: blocks of several warps, NaN, the
// number of launches, heads that are too wide.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/node.h"
#include "ops/ops.h"
#include "runtime/cuda_status.h"
#include "runtime/launch_count.h"
#include "runtime/memory_ops.h"
#include "runtime/random.h"
#include "tests/runtime/gpu.h"

namespace duet::test {
namespace {

Tensor random(const Shape& shape, std::uint64_t seed) {
  Tensor t = Tensor::empty(shape, DType::f32);
  fill_uniform(t, {.seed = seed, .use = kUseTest}, -1, 1);
  return t;
}

Tensor to_f64(const Tensor& x) {
  Tensor y = Tensor::empty(x.shape(), DType::f64);
  copy(y, x);
  return y;
}

struct Pass {
  Tensor out, dq, dk, dv;
};
Pass run(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& grad_out,
         const AttentionOptions& options) {
  Tensor a = q.detach(), b = k.detach(), c = v.detach();
  for (Tensor* t : {&a, &b, &c}) set_requires_grad(*t);
  const Tensor out = attention(a, b, c, options);
  backward(out, grad_out);
  return {out.detach(), grad(a), grad(b), grad(c)};
}

void expect_near(const Tensor& got, const Tensor& want, double tolerance, const char* what) {
  const Tensor x = to_f64(to_device(got, kCpu));
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double y = want.data<double>()[i];
    ASSERT_LE(std::abs(x.data<double>()[i] - y), tolerance * (1 + std::abs(y)))
        << what << ", element " << i;
  }
}

// So many heads that a block gets all its warps, two documents, several tiles on both sides.
TEST(AttentionCuda, BlocksOfSeveralWarps) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const std::int64_t queries = 66, keys = 70, heads = 128;
  const Tensor q = random({1, queries, heads, 3}, 1), k = random({1, keys, heads, 3}, 2);
  const Tensor v = random({1, keys, heads, 2}, 3), dy = random({1, queries, heads, 2}, 4);
  AttentionOptions here, there;
  here.first_visible = Tensor::zeros({1, queries}, DType::i32);
  std::fill_n(here.first_visible.mutable_data<std::int32_t>() + 40, queries - 40, 44);
  there.first_visible = to_device(here.first_visible, kCuda);
  const Pass want = run(to_f64(q), to_f64(k), to_f64(v), to_f64(dy), here);
  const Pass got = run(to_device(q, kCuda), to_device(k, kCuda), to_device(v, kCuda),
                       to_device(dy, kCuda), there);
  expect_near(got.out, want.out, 1e-5, "out");
  expect_near(got.dq, want.dq, 1e-4, "dq");
  expect_near(got.dk, want.dk, 1e-4, "dk");
  expect_near(got.dv, want.dv, 1e-4, "dv");
}

// NaN in a key reaches every query that sees it, and none that does not.
TEST(AttentionCuda, NotANumberIsNeverHidden) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const std::int64_t keys = 90;
  for (const std::int64_t at : {0, 3, 66, 89}) {
    for (const std::int64_t queries : {keys, std::int64_t{2}}) {  // tiles, and a decoding step
      Tensor k = random({1, keys, 1, 8}, 2);
      k.mutable_data<float>()[at * 8 + 5] = std::nanf("");
      const Tensor y =
          to_device(attention(to_device(random({1, queries, 1, 8}, 1), kCuda), to_device(k, kCuda),
                              to_device(random({1, keys, 1, 8}, 3), kCuda)),
                    kCpu);
      for (std::int64_t i = 0; i < queries; ++i) {
        const bool sees = at <= i + keys - queries;
        EXPECT_EQ(std::isnan(y.data<float>()[i * 8]), sees) << at << ' ' << i;
      }
    }
  }
}

std::uint64_t launches(const auto& call) {
  start_counting_launches();
  call();
  std::uint64_t sum = 0;
  for (const LaunchCount& c : stop_counting_launches()) {
    if (c.op == "attention") sum += c.launches;
  }
  return sum;
}

TEST(AttentionCuda, OneLaunchForwardAndTwoBackward) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  for (const std::int64_t queries : {1, 20}) {
    Tensor q = to_device(random({1, queries, 2, 8}, 1), kCuda);
    Tensor kv = to_device(random({1, 20, 2, 8}, 2), kCuda);
    for (Tensor* t : {&q, &kv}) set_requires_grad(*t);
    Tensor y;
    EXPECT_EQ(launches([&] { y = attention(q, kv, kv); }), 1U);
    EXPECT_EQ(launches([&] { backward(y, Tensor::full(y.shape(), 1, DType::f32, kCuda)); }), 2U);
  }
}

TEST(AttentionCuda, TooWideHeadsAreRefused) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const Tensor x = Tensor::zeros({1, 2, 1, 320}, DType::f32, kCuda);
  try {
    attention(x, x, x);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::shape);
    EXPECT_STREQ(e.what(),
                 "attention: head width is too large for cuda: got 320, expected <= 256; use more "
                 "heads, or --device cpu");
  }
}

}  // namespace
}  // namespace duet::test
