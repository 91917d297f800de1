// attention at its edges: rows that see nothing, long and short sides, packed documents, a growing
// cache, memory, threads, values at the ends of the range, refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "autograd/node.h"
#include "ops/ops.h"
#include "runtime/allocator.h"
#include "runtime/cpu/parallel.h"
#include "runtime/memory_ops.h"
#include "runtime/random.h"

namespace duet::test {
namespace {

Tensor random(const Shape& shape, std::uint64_t seed, double size = 1) {
  Tensor t = Tensor::empty(shape, DType::f32);
  RandomKey key;
  key.seed = seed;
  key.use = kUseTest;
  fill_uniform(t, key, -size, size);
  return t;
}

Tensor to_f64(const Tensor& x) {
  Tensor y = Tensor::empty(x.shape(), DType::f64);
  copy(y, x);
  return y;
}

std::vector<double> values(const Tensor& x) {
  const Tensor y = to_f64(x);
  return {y.data<double>(), y.data<double>() + y.numel()};
}

Tensor first_visible(const Shape& shape, const std::vector<std::int32_t>& keys) {
  Tensor t = Tensor::empty(shape, DType::i32);
  std::copy(keys.begin(), keys.end(), t.mutable_data<std::int32_t>());
  return t;
}

struct Pass {
  Tensor out, dq, dk, dv;
};
Pass run(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& grad_out,
         const AttentionOptions& options = {}) {
  Tensor a = q.detach(), b = k.detach(), c = v.detach();
  for (Tensor* t : {&a, &b, &c}) set_requires_grad(*t);
  const Tensor out = attention(a, b, c, options);
  backward(out, grad_out);
  return {out.detach(), grad(a), grad(b), grad(c)};
}

void expect_near(const Tensor& got, const Tensor& want, double rtol, double atol,
                 const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  const std::vector<double> g = values(got), w = values(want);
  for (std::size_t i = 0; i < g.size(); ++i) {
    ASSERT_LE(std::abs(g[i] - w[i]), atol + rtol * std::abs(w[i]))
        << what << ", element " << i << ": got " << g[i] << ", expected " << w[i];
  }
}

void expect_near(const Pass& got, const Pass& want, double tolerance) {
  expect_near(got.out, want.out, tolerance, tolerance, "out");
  expect_near(got.dq, want.dq, 10 * tolerance, 10 * tolerance, "dq");
  expect_near(got.dk, want.dk, 10 * tolerance, 10 * tolerance, "dk");
  expect_near(got.dv, want.dv, 10 * tolerance, 10 * tolerance, "dv");
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.data<float>(), b.data<float>(), a.nbytes()) == 0;
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

// The f32 tiles against the f64 loops, at the sizes of a training step.
TEST(Attention, TilesMatchPlainLoops) {
  struct Sizes {
    std::int64_t queries, keys, heads, kv_heads, width, value_width;
    bool causal;
  };
  for (const Sizes& s : {Sizes{256, 256, 2, 2, 64, 64, true}, Sizes{200, 330, 4, 2, 64, 128, true},
                         Sizes{130, 129, 2, 1, 96, 48, false}, Sizes{64, 64, 2, 2, 32, 32, true},
                         Sizes{331, 65, 1, 1, 80, 7, true}}) {
    const Tensor q = random({2, s.queries, s.heads, s.width}, 1, 2);
    const Tensor k = random({2, s.keys, s.kv_heads, s.width}, 2, 2);
    const Tensor v = random({2, s.keys, s.kv_heads, s.value_width}, 3, 2);
    const Tensor dy = random({2, s.queries, s.heads, s.value_width}, 4);
    AttentionOptions options;
    options.causal = s.causal;
    expect_near(run(q, k, v, dy, options),
                run(to_f64(q), to_f64(k), to_f64(v), to_f64(dy), options), 1e-5);
  }
}

// One masked row of one sequence: zeros there, and for everyone else as if its loss did not count.
TEST(Attention, FullyMaskedRowLeavesOthersAlone) {
  const Tensor q = random({2, 4, 2, 8}, 1), k = random({2, 4, 2, 8}, 2),
               v = random({2, 4, 2, 8}, 3);
  Tensor dy = random({2, 4, 2, 8}, 4);
  AttentionOptions masked;
  masked.first_visible = first_visible({2, 4}, {0, 0, 4, 0, 0, 0, 0, 0});
  const Pass with_row = run(q, k, v, dy, masked);
  Tensor ignored = dy.slice_view(0, 0, 1).slice_view(1, 2, 3);
  fill(ignored, 0);
  const Pass without = run(q, k, v, dy);
  const Pass masked_and_ignored = run(q, k, v, dy, masked);
  for (int i = 32; i < 48; ++i) {
    EXPECT_EQ(with_row.out.data<float>()[i], 0);
    EXPECT_EQ(with_row.dq.data<float>()[i], 0);
  }
  // Its gradient reaches nobody, whatever the loss says of it.
  expect_near(with_row.dq, masked_and_ignored.dq, 0, 0, "dq");
  expect_near(with_row.dk, masked_and_ignored.dk, 0, 0, "dk");
  expect_near(with_row.dv, masked_and_ignored.dv, 0, 0, "dv");
  expect_near(with_row.dq, without.dq, 1e-6, 1e-6, "dq");
  expect_near(with_row.dk, without.dk, 1e-6, 1e-6, "dk");
  expect_near(with_row.dv, without.dv, 1e-6, 1e-6, "dv");
}

// Many more queries than keys: the causal mask, aligned at the end, hides all keys from the first.
TEST(Attention, QueriesBeforeTheFirstKeyGiveZeros) {
  for (const std::int64_t queries : {76, 34, 146}) {
    const Tensor q = random({1, queries, 2, 16}, 1), k = random({1, 1, 2, 16}, 2);
    const Tensor v = random({1, 1, 2, 16}, 3), dy = random({1, queries, 2, 16}, 4);
    const Pass r = run(q, k, v, dy);
    for (std::int64_t i = 0; i < (queries - 1) * 32; ++i) {
      ASSERT_EQ(r.out.data<float>()[i], 0) << i;
      ASSERT_EQ(r.dq.data<float>()[i], 0) << i;
    }
    expect_near(r.out.slice_view(1, queries - 1, queries), v, 1e-6, 0, "last row");
    expect_near(r.dv, dy.slice_view(1, queries - 1, queries), 1e-6, 0, "dv");
    for (const double g : values(r.dk)) ASSERT_NEAR(g, 0, 1e-6);
  }
}

// One query, 65,536 keys, a gradient expanded from one number. q = 0 makes every weight 1/65536.
TEST(Attention, OneQueryAndVeryManyKeys) {
  const std::int64_t keys = 65536;
  const Tensor q = Tensor::zeros({1, 1, 2, 8}, DType::f32);
  const Tensor k = random({1, keys, 2, 8}, 2), v = random({1, keys, 2, 8}, 3);
  const Tensor dy = Tensor::full({1, 1, 1, 1}, 0.5, DType::f32).expand_view({1, 1, 2, 8});
  const Pass r = run(q, k, v, dy);
  std::vector<double> mean(16);
  const std::vector<double> all = values(v);
  for (std::size_t i = 0; i < all.size(); ++i) mean[i % 16] += all[i] / keys;
  for (std::size_t c = 0; c < 16; ++c) EXPECT_NEAR(r.out.data<float>()[c], mean[c], 1e-5);
  for (const double g : values(r.dv)) ASSERT_NEAR(g, 0.5 / keys, 1e-9);
  for (const double g : values(r.dk)) ASSERT_EQ(g, 0);  // q is 0
  for (const double g : values(r.dq)) ASSERT_TRUE(std::isfinite(g));
}

TEST(Attention, OneTokenReturnsItsValue) {
  for (const std::int64_t width : {1, 5}) {
    const Tensor q = random({3, 1, 2, width}, 1), k = random({3, 1, 2, width}, 2);
    const Tensor v = random({3, 1, 2, width}, 3), dy = random({3, 1, 2, width}, 4);
    const Pass r = run(q, k, v, dy);
    expect_near(r.out, v, 1e-6, 0, "out");
    expect_near(r.dv, dy, 1e-6, 0, "dv");
    for (const double g : values(r.dq)) EXPECT_NEAR(g, 0, 1e-6);
    for (const double g : values(r.dk)) EXPECT_NEAR(g, 0, 1e-6);
  }
}

TEST(Attention, EmptySides) {
  const Tensor q = random({2, 3, 2, 4}, 1);
  const Pass no_keys =
      run(q, random({2, 0, 2, 4}, 2), random({2, 0, 2, 4}, 3), random({2, 3, 2, 4}, 4));
  for (const double y : values(no_keys.out)) EXPECT_EQ(y, 0);
  for (const double g : values(no_keys.dq)) EXPECT_EQ(g, 0);
  EXPECT_EQ(no_keys.dk.shape(), (Shape{2, 0, 2, 4}));
  const Pass no_queries = run(random({2, 0, 2, 4}, 1), q, q, random({2, 0, 2, 4}, 4));
  EXPECT_EQ(no_queries.out.shape(), (Shape{2, 0, 2, 4}));
  for (const double g : values(no_queries.dk)) EXPECT_EQ(g, 0);
  for (const double g : values(no_queries.dv)) EXPECT_EQ(g, 0);
  // Width 0: every score is 0, so every query sees the mean.
  AttentionOptions full;
  full.causal = false;
  const Tensor ones = Tensor::full({1, 5, 1, 3}, 1, DType::f32);
  const Tensor none = Tensor::empty({1, 5, 1, 0}, DType::f32);
  expect_near(attention(none, none, ones, full), ones, 1e-6, 0, "width 0");
}

// Two documents in one row of the batch see only themselves.
TEST(Attention, PackedDocumentsMatchSeparateOnes) {
  const std::int64_t first = 83, second = 70, total = first + second;
  const Tensor q = random({1, total, 2, 16}, 1), k = random({1, total, 2, 16}, 2);
  const Tensor v = random({1, total, 2, 16}, 3), dy = random({1, total, 2, 16}, 4);
  std::vector<std::int32_t> starts(static_cast<std::size_t>(total), -5);  // below 0 is 0
  std::fill(starts.begin() + first, starts.end(), static_cast<std::int32_t>(first));
  AttentionOptions packed;
  packed.first_visible = first_visible({1, total}, starts);
  const Pass all = run(q, k, v, dy, packed);
  for (const auto& [begin, end] : {std::pair{std::int64_t{0}, first}, std::pair{first, total}}) {
    const auto part = [b = begin, e = end](const Tensor& t) { return t.slice_view(1, b, e); };
    expect_near({part(all.out), part(all.dq), part(all.dk), part(all.dv)},
                run(part(q), part(k), part(v), part(dy)), 1e-5);
  }
}

// q, k and v as views of one [B, T, 3C] buffer, and as tensors of their own.
TEST(Attention, ViewsOfOneBuffer) {
  const std::int64_t batch = 2, time = 70, heads = 3, width = 20, c = heads * width;
  const Tensor qkv = random({batch, time, 3 * c}, 1);
  const auto view = [&](std::int64_t part) {
    return qkv.as_strided({batch, time, heads, width}, {time * 3 * c, 3 * c, width, 1}, part * c);
  };
  const Tensor dy = random({batch, time, heads, width}, 2);
  const Pass strided = run(view(0), view(1), view(2), dy);
  const Pass plain = run(clone(view(0)), clone(view(1)), clone(view(2)), dy);
  EXPECT_TRUE(same_bits(strided.out, plain.out));
  EXPECT_TRUE(same_bits(strided.dq, plain.dq));
  EXPECT_TRUE(same_bits(strided.dk, plain.dk));
  EXPECT_TRUE(same_bits(strided.dv, plain.dv));
}

// Token by token with a cache, and in pieces, against the whole sequence at once.
TEST(Attention, CacheMatchesFullForward) {
  const std::int64_t time = 140, capacity = 160, heads = 4, kv_heads = 2, width = 24;
  const Tensor q = random({2, time, heads, width}, 1, 2);
  const Tensor k_cache = random({2, capacity, kv_heads, width}, 2, 2);
  const Tensor v_cache = random({2, capacity, kv_heads, width}, 3, 2);
  const Tensor whole = attention(q, k_cache.slice_view(1, 0, time), v_cache.slice_view(1, 0, time));
  for (const std::int64_t piece : {1, 2, 3, 9, 65}) {
    for (std::int64_t begin = 0; begin < time; begin += piece) {
      const std::int64_t end = std::min(time, begin + piece);
      const Tensor step = attention(q.slice_view(1, begin, end), k_cache.slice_view(1, 0, end),
                                    v_cache.slice_view(1, 0, end));
      expect_near(step, whole.slice_view(1, begin, end), 1e-5, 1e-5,
                  concat("tokens ", begin, " to ", end));
    }
  }
}

// Scores at the ends of the range: the largest wins alone, nothing overflows.
TEST(Attention, HugeScores) {
  Tensor q = Tensor::full({1, 3, 1, 8}, 100, DType::f32), k = random({1, 3, 1, 8}, 2);
  for (std::int64_t j = 0; j < 3; ++j) {
    Tensor row = k.slice_view(1, j, j + 1);
    fill(row, j == 1 ? 100.0 : -100.0);
  }
  const Tensor v = random({1, 3, 1, 8}, 3), dy = random({1, 3, 1, 8}, 4);
  const Pass r = run(q, k, v, dy);
  expect_near(r.out.slice_view(1, 2, 3), v.slice_view(1, 1, 2), 0, 0, "the winner");
  for (const Tensor& t : {r.out, r.dq, r.dk, r.dv}) {
    for (const double g : values(t)) EXPECT_TRUE(std::isfinite(g));
  }
}

// NaN reaches every query that sees it, and none that does not.
TEST(Attention, NotANumberIsNeverHidden) {
  const float nan = std::nanf("");
  const std::int64_t time = 90;
  for (const std::int64_t at : {0, 3, 66, 89}) {
    for (const std::int64_t queries : {time, std::int64_t{2}}) {  // tiles, and a decoding step
      const Tensor q = random({1, queries, 1, 8}, 1), v = random({1, time, 1, 8}, 3);
      Tensor k = random({1, time, 1, 8}, 2);
      k.mutable_data<float>()[at * 8 + 5] = nan;
      const std::vector<double> y = values(attention(q, k, v));
      for (std::int64_t i = 0; i < queries; ++i) {
        const bool sees = at <= i + time - queries;
        EXPECT_EQ(std::isnan(y[static_cast<std::size_t>(i * 8)]), sees) << at << ' ' << i;
      }
    }
  }
}

TEST(Attention, SameBitsOnAnyNumberOfThreads) {
  const int threads = num_threads();
  const Tensor q = random({3, 150, 4, 32}, 1), k = random({3, 150, 2, 32}, 2);
  const Tensor v = random({3, 150, 2, 32}, 3), dy = random({3, 150, 4, 32}, 4);
  set_num_threads(1);
  const Pass one = run(q, k, v, dy);
  for (const int n : {2, 5}) {
    set_num_threads(n);
    const Pass many = run(q, k, v, dy);
    EXPECT_TRUE(same_bits(one.out, many.out));
    EXPECT_TRUE(same_bits(one.dq, many.dq));
    EXPECT_TRUE(same_bits(one.dk, many.dk));
    EXPECT_TRUE(same_bits(one.dv, many.dv));
  }
  set_num_threads(threads);
}

// Bytes at the peak of a forward and backward pass, beyond what was there before.
std::size_t peak_bytes(std::int64_t time) {
  const Tensor x = random({1, time, 1, 32}, 1);
  Allocator& cpu = allocator(kCpu);
  const std::size_t before = cpu.stats().allocated;
  cpu.reset_peak();
  run(x, x, x, x);
  return cpu.stats().peak_allocated - before;
}

TEST(Attention, MemoryIsLinearInTime) {
  const std::size_t small = peak_bytes(1024), large = peak_bytes(4096);
  EXPECT_LT(large, 4 * small + 65536);
  EXPECT_LT(large, std::size_t{4096} * 4096 * sizeof(float) / 8);  // no map of all pairs
}

TEST(Attention, Refusals) {
  const Tensor q = random({2, 5, 4, 8}, 1), k = random({2, 6, 2, 8}, 2);
  const auto call = [&](const Tensor& a, const Tensor& b, const Tensor& c,
                        const AttentionOptions& options = {}) {
    return [=] { attention(a, b, c, options); };
  };
  expect_error(ErrorKind::shape,
               "attention: dimensions: got q [2, 5, 32], k [2, 6, 2, 8], v [2, 6, 2, 8], expected "
               "[B, Tq, Hq, D], [B, Tk, Hkv, D], [B, Tk, Hkv, Dv]",
               call(random({2, 5, 32}, 1), k, k));
  expect_error(ErrorKind::shape,
               "attention: batch sizes differ: q is [2, 5, 4, 8], k is [3, 6, 2, 8], v is "
               "[2, 6, 2, 8]; all three share one batch",
               call(q, random({3, 6, 2, 8}, 1), k));
  expect_error(
      ErrorKind::shape,
      "attention: head widths differ: q is [2, 5, 4, 8], k is [2, 6, 2, 9]; the last sizes "
      "must be equal",
      call(q, random({2, 6, 2, 9}, 1), k));
  expect_error(ErrorKind::shape,
               "attention: keys and values differ: k is [2, 6, 2, 8], v is [2, 7, 2, 8]; times and "
               "heads must be equal",
               call(q, k, random({2, 7, 2, 8}, 1)));
  const Tensor three = random({2, 6, 3, 8}, 1);
  expect_error(ErrorKind::shape,
               "attention: query heads: got 4, expected a multiple of the 3 key/value heads",
               call(q, three, three));
  AttentionOptions options;
  options.scale = std::numeric_limits<double>::quiet_NaN();
  expect_error(ErrorKind::usage,
               "attention: scale: got nan, expected a finite number, or 0 for 1/sqrt(D)",
               call(q, k, k, options));
  options.scale = 0;
  options.first_visible = first_visible({2, 6}, std::vector<std::int32_t>(12));
  expect_error(ErrorKind::shape, "attention: first_visible: got [2, 6], expected [B, Tq] = [2, 5]",
               call(q, k, k, options));
  options.first_visible = Tensor::zeros({2, 5}, DType::i64);
  expect_error(ErrorKind::dtype, "attention: first_visible: got i64, expected i32",
               call(q, k, k, options));
  expect_error(ErrorKind::dtype,
               "attention: dtypes differ: q is f32, k is f64, v is f32; convert to one",
               call(q, to_f64(k), k));
}

}  // namespace
}  // namespace duet::test
