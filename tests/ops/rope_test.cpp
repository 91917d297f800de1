// rope beyond its rows: what rotations keep, positions, views of a fused buffer, threads, refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "autograd/node.h"
#include "ops/ops.h"
#include "runtime/cpu/parallel.h"
#include "runtime/memory_ops.h"
#include "runtime/random.h"

namespace duet::test {
namespace {

Tensor random(const Shape& shape, std::uint64_t seed) {
  Tensor t = Tensor::empty(shape, DType::f32);
  RandomKey key;
  key.seed = seed;
  key.use = kUseTest;
  fill_uniform(t, key, -1, 1);
  return t;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = clone(a), y = clone(b);
  return x.shape() == y.shape() && std::memcmp(x.data<float>(), y.data<float>(), x.nbytes()) == 0;
}

void expect_error(ErrorKind kind, const std::string& text, const auto& call) {
  try {
    call();
    FAIL() << "no error, expected: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.what(), text);
    EXPECT_EQ(e.kind(), kind);
  }
}

TEST(Rope, TableHoldsCosinesAndSines) {
  const Tensor table = rope_table(300, 8, 10000, DType::f32, kCpu);
  EXPECT_EQ(table.shape(), (Shape{300, 2, 4}));
  for (int t = 0; t < 300; ++t) {
    for (int i = 0; i < 4; ++i) {
      const double angle = t * std::pow(10000.0, -2.0 * i / 8);
      EXPECT_NEAR(table.data<float>()[t * 8 + i], std::cos(angle), 1e-7);
      EXPECT_NEAR(table.data<float>()[t * 8 + 4 + i], std::sin(angle), 1e-7);
    }
  }
}

TEST(Rope, FirstPositionIsUnchanged) {
  const Tensor x = random({2, 1, 3, 10}, 1);
  EXPECT_TRUE(same_bits(rope(x, rope_table(1, 10, 10000, DType::f32, kCpu)), x));
}

// The score of a rotated pair depends on the distance of their positions alone.
TEST(Rope, ScoresDependOnDistance) {
  const Tensor table = rope_table(64, 16, 10000, DType::f64, kCpu);
  Tensor q = Tensor::empty({1, 1, 1, 16}, DType::f64), k = Tensor::empty_like(q);
  copy(q, random(q.shape(), 1));
  copy(k, random(k.shape(), 2));
  const auto score = [&](std::int64_t i, std::int64_t j) {
    const Tensor a = rope(q, table, i), b = rope(k, table, j);
    double sum = 0;
    for (int c = 0; c < 16; ++c) sum += a.data<double>()[c] * b.data<double>()[c];
    return sum;
  };
  for (const std::int64_t shift : {1, 20, 50}) {
    EXPECT_NEAR(score(9, 2), score(9 + shift, 2 + shift), 1e-12);
    EXPECT_GT(std::abs(score(9, 2) - score(9 + shift, 2)), 1e-3);
  }
}

TEST(Rope, BackwardTurnsBack) {
  Tensor x = random({2, 7, 2, 20}, 1);
  set_requires_grad(x);
  const Tensor y = rope(x, rope_table(9, 20, 10000, DType::f32, kCpu), 2);
  backward(y, y.detach());  // the gradient of |y|^2 / 2, which is |x|^2 / 2
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    EXPECT_NEAR(grad(x).data<float>()[i], x.data<float>()[i], 1e-6);
  }
}

TEST(Rope, PiecesMatchTheWhole) {
  const Tensor table = rope_table(12, 24, 10000, DType::f32, kCpu);
  const Tensor x = random({2, 12, 3, 24}, 1), whole = rope(x, table);
  for (std::int64_t t = 0; t < 12; ++t) {
    EXPECT_TRUE(
        same_bits(rope(x.slice_view(1, t, t + 1), table, t), whole.slice_view(1, t, t + 1)));
  }
}

TEST(Rope, ViewOfAFusedBuffer) {
  const Tensor table = rope_table(6, 16, 10000, DType::f32, kCpu);
  const Tensor qkv = random({2, 6, 3 * 32}, 1);
  const Tensor k = qkv.as_strided({2, 6, 2, 16}, {6 * 96, 96, 16, 1}, 32);
  const Tensor y = rope(k, table);
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_TRUE(same_bits(y, rope(clone(k), table)));
}

TEST(Rope, SameBitsOnAnyNumberOfThreads) {
  const int threads = num_threads();
  const Tensor table = rope_table(256, 64, 10000, DType::f32, kCpu);
  const Tensor x = random({2, 256, 8, 64}, 1);
  set_num_threads(1);
  const Tensor one = rope(x, table);
  set_num_threads(2);
  EXPECT_TRUE(same_bits(one, rope(x, table)));
  set_num_threads(threads);
}

TEST(Rope, Refusals) {
  const Tensor table = rope_table(8, 6, 10000, DType::f32, kCpu);
  const Tensor x = random({2, 5, 3, 6}, 1);
  expect_error(ErrorKind::shape,
               "rope: head width is odd: got 7 (x is [2, 5, 3, 7]), expected an even width; "
               "dimensions are rotated in pairs",
               [&] {
                 rope(random({2, 5, 3, 7}, 1), table);
               });
  expect_error(ErrorKind::shape, "rope: x: got [2, 5, 18], expected [B, T, H, D]", [&] {
    rope(random({2, 5, 18}, 1), table);
  });
  expect_error(ErrorKind::shape,
               "rope: table does not fit: got [8, 2, 3], expected [length, 2, 4] for x of "
               "[2, 5, 3, 8]; make the table for this head width",
               [&] {
                 rope(random({2, 5, 3, 8}, 1), table);
               });
  expect_error(ErrorKind::index,
               "rope: positions run past the table: got positions [4, 9), expected them in [0, 8); "
               "make a longer rope_table or a shorter sequence",
               [&] { rope(x, table, 4); });
  expect_error(
      ErrorKind::index,
      "rope: positions run past the table: got positions [-1, 4), expected them in [0, 8); "
      "make a longer rope_table or a shorter sequence",
      [&] { rope(x, table, -1); });
  EXPECT_NO_THROW(rope(x, table, 3));
  expect_error(ErrorKind::dtype,
               "rope: dtypes differ: table is f64, x is f32; make the table in the type of x",
               [&] { rope(x, rope_table(8, 6, 10000, DType::f64, kCpu)); });
  expect_error(
      ErrorKind::shape,
      "rope_table: size does not fit: got length 8, head width 7, expected length >= 0 and "
      "an even head width",
      [] { rope_table(8, 7, 10000, DType::f32, kCpu); });
  expect_error(ErrorKind::usage,
               "rope_table: theta: got 0, expected a positive number (10000 is usual)",
               [] { rope_table(8, 6, 0, DType::f32, kCpu); });
  Tensor learned = clone(table);
  set_requires_grad(learned);
  expect_error(ErrorKind::autograd,
               "rope: the table takes no gradient, but requires one; detach() it first",
               [&] { rope(x, learned); });
}

}  // namespace
}  // namespace duet::test
