// The couplings against the same written with plain ops; memory, threads, layouts, refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "autograd/node.h"
#include "autograd/saved_tensor.h"
#include "ops/ops.h"
#include "runtime/cpu/parallel.h"
#include "runtime/memory_ops.h"
#include "tests/ops/coupling_reference.h"

namespace duet::test {
namespace {

double largest(const Tensor& t) {
  double most = 0;
  for (const double v : values(t)) most = std::max(most, std::abs(v));
  return most;
}

class Parity : public testing::TestWithParam<std::tuple<Map, CouplingSetup>> {};

void expect_equal(const Result& got, const Result& want, double tolerance) {
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string what = concat("output ", i);
    EXPECT_EQ(compare(what, got.outputs[i], want.outputs[i], {tolerance, tolerance}), "");
  }
  // A weight's gradient sums over all tokens: its error is measured by its largest element.
  for (std::size_t i = 0; i < want.grads.size(); ++i) {
    const std::string what = concat("gradient of input ", i);
    const double size = std::max(1.0, largest(want.grads[i]));
    EXPECT_EQ(compare(what, got.grads[i], want.grads[i], {tolerance, tolerance * size}), "");
  }
}

// The potential's force, which forward gets from grad(), against the force by hand; and so
// training, a gradient of that gradient, against the plain one of the formula.
TEST_P(Parity, OpEqualsComposite) {
  const auto& [map, s] = GetParam();
  const Tensors inputs = coupling_inputs(map, s, DType::f64);
  const Tensors f32_inputs = coupling_inputs(map, s, DType::f32);
  const Tensors cotangents{random_tensor(inputs[0].shape(), -1, 1, 5),
                           random_tensor(inputs[1].shape(), -1, 1, 6)};
  const Tensors f32_cotangents = convert(cotangents, DType::f32);
  const Result want = run(composite_row(map, s.steps), inputs, cotangents);
  for (const bool run_back : {false, true}) {
    if (run_back && !is_invertible(map)) continue;
    SCOPED_TRACE(run_back ? "run back" : "run again");
    const OpCase row = fused_row(map, s.steps, run_back);
    expect_equal(run(row, inputs, cotangents), want, 1e-10);
    // affine multiplies what rounding left in s: a little more of it.
    expect_equal(run(row, f32_inputs, f32_cotangents), want, map == Map::affine ? 3e-5 : 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Coupling, Parity,
    testing::Combine(
        testing::ValuesIn(kMaps),
        testing::Values(
            CouplingSetup{2, 32, 2, 2, 64, 8, 2, 1}, CouplingSetup{2, 45, 2, 2, 64, 8, 2, 2},
            CouplingSetup{1, 40, 2, 2, 64, 64, 2, 3}, CouplingSetup{3, 11, 2, 2, 16, 8, 1, 4},
            CouplingSetup{2, 33, 6, 2, 16, 8, 2, 2}, CouplingSetup{2, 32, 4, 2, 64, 8, 1, 1},
            CouplingSetup{2, 35, 2, 1, 5, 64, 1, 4}, CouplingSetup{1, 150, 3, 3, 5, 3, 3, 1},
            CouplingSetup{1, 1, 2, 2, 24, 16, 2, 1}, CouplingSetup{1, 300, 1, 1, 16, 17, 1, 2},
            CouplingSetup{2, 45, 6, 3, 16, 8, 1, 2, true})),
    [](const auto& test) {
      return name_of(std::get<0>(test.param)) + "_" + std::to_string(test.index);
    });

// --- Every coupling

class Coupling : public testing::TestWithParam<Map> {};
INSTANTIATE_TEST_SUITE_P(Maps, Coupling, testing::ValuesIn(kMaps),
                         [](const auto& test) { return name_of(test.param); });

class FusedCoupling : public Coupling {};
INSTANTIATE_TEST_SUITE_P(Maps, FusedCoupling, testing::ValuesIn(kFusedMaps),
                         [](const auto& test) { return name_of(test.param); });

// Affine, the last of the list, has no step size.
class SteppedCoupling : public Coupling {};
INSTANTIATE_TEST_SUITE_P(Maps, SteppedCoupling,
                         testing::ValuesIn(std::begin(kFusedMaps), std::prev(std::end(kFusedMaps))),
                         [](const auto& test) { return name_of(test.param); });

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = contiguous_copy(a), y = contiguous_copy(b);
  return x.shape() == y.shape() && std::memcmp(x.data<float>(), y.data<float>(), x.nbytes()) == 0;
}

TEST_P(SteppedCoupling, StepOfSizeZeroIsTheIdentityBitForBit) {
  const Map map = GetParam();
  for (const CouplingSetup& s :
       {CouplingSetup{2, 37, 2, 2, 16, 8, 2, 3}, CouplingSetup{2, 32, 4, 2, 5, 8, 1, 1}}) {
    Tensors in = coupling_inputs(map, s, DType::f32);
    in[4] = Tensor::zeros({s.nets}, DType::f32);
    Tensor q = clone(in[0]);
    q.mutable_data<float>()[0] = -0.0F;
    in[0] = q;
    const Tensors cotangents{convert(random_tensor(in[0].shape(), -1, 1, 5), DType::f32),
                             convert(random_tensor(in[1].shape(), -1, 1, 6), DType::f32)};
    Tensor gq = cotangents[0];
    gq.mutable_data<float>()[1] = -0.0F;
    const Result result = run(fused_row(map, s.steps), in, cotangents);
    EXPECT_TRUE(same_bits(result.outputs[0], in[0]));
    EXPECT_TRUE(same_bits(result.outputs[1], in[1]));
    EXPECT_TRUE(same_bits(result.grads[0], cotangents[0]));
    EXPECT_TRUE(same_bits(result.grads[1], cotangents[1]));
    EXPECT_EQ(largest(result.grads[2]), 0);
    EXPECT_EQ(largest(result.grads[3]), 0);
    // dt itself learns from the first step on: d(dt) = n (<gq, k> + <gk, f(q)>).
    const Result want =
        run(composite_row(map, s.steps), convert(in, DType::f64), convert(cotangents, DType::f64));
    EXPECT_EQ(compare("d(dt)", result.grads[4], want.grads[4], {1e-5, 1e-4}), "");
    EXPECT_GT(largest(result.grads[4]), 0.1);
  }
}

TEST_P(SteppedCoupling, InfinitiesPassThroughAStepOfSizeZero) {
  const Map map = GetParam();
  const float inf = std::numeric_limits<float>::infinity();
  Tensors in = coupling_inputs(map, {1, 8, 1, 1, 8, 8, 1, 1}, DType::f32);
  in[1] = Tensor::full({1, 8, 1, 8}, inf, DType::f32);
  in[4] = Tensor::zeros({1}, DType::f32);
  const Tensors out = fused(map, in, 1);
  EXPECT_TRUE(same_bits(out[0], in[0]));
  EXPECT_TRUE(same_bits(out[1], in[1]));
}

TEST_P(FusedCoupling, SavedBytesDoNotGrowWithSteps) {
  const Map map = GetParam();
  for (const bool run_back : {false, true}) {
    if (run_back && !is_invertible(map)) continue;
    std::vector<std::size_t> kept;
    for (const int steps : {1, 2, 7}) {
      Tensors in = coupling_inputs(map, {2, 16, 4, 2, 16, 8, 2, 1}, DType::f32);
      for (Tensor& t : in) set_requires_grad(t);
      const std::size_t before = saved_bytes();
      const Tensors out = fused(map, in, steps, run_back);
      kept.push_back(saved_bytes() - before);
    }
    EXPECT_EQ(kept, std::vector<std::size_t>(3, kept[0]));
    EXPECT_GT(kept[0], 0U);
  }
}

// Matrix products cut their sums by the number of threads; the fused maps do not.
TEST_P(FusedCoupling, SameBitsForOneAndTwoThreads) {
  const Map map = GetParam();
  const int threads = num_threads();
  for (const CouplingSetup& s :
       {CouplingSetup{3, 201, 2, 2, 64, 8, 2, 2}, CouplingSetup{3, 201, 4, 2, 16, 8, 1, 1}}) {
    Tensors results[2];
    for (const int n : {1, 2}) {
      set_num_threads(n);
      const Tensors in = coupling_inputs(map, s, DType::f32);
      const Tensors cotangents{convert(random_tensor(in[0].shape(), -1, 1, 5), DType::f32),
                               convert(random_tensor(in[1].shape(), -1, 1, 6), DType::f32)};
      const Result r = run(fused_row(map, s.steps), in, cotangents);
      results[n - 1] = r.outputs;
      results[n - 1].insert(results[n - 1].end(), r.grads.begin(), r.grads.end());
    }
    ASSERT_EQ(results[0].size(), map == Map::affine ? 6U : 7U);
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      EXPECT_TRUE(same_bits(results[0][i], results[1][i])) << i;
    }
  }
  set_num_threads(threads);
}

// Tokens whose batches do not follow one another at one stride.
TEST_P(Coupling, BatchesWithAGapBetweenThem) {
  const Map map = GetParam();
  const Tensors wide = coupling_inputs(map, {3, 50, 2, 2, 16, 8, 2, 2}, DType::f32);
  Tensors gapped = wide, plain = wide;
  for (const std::size_t i : {0, 1}) {
    gapped[i] = wide[i].slice_view(1, 3, 48);
    plain[i] = clone(gapped[i]);
  }
  const Tensors got = fused(map, gapped, 2), want = fused(map, plain, 2);
  EXPECT_TRUE(same_bits(got[0], want[0]));
  EXPECT_TRUE(same_bits(got[1], want[1]));
}

TEST_P(Coupling, GradientOfOneOutputAlone) {
  const Map map = GetParam();
  for (const std::size_t used : {0, 1}) {
    for (const std::int64_t query_heads : {2, 4}) {
      Tensors grads[2];
      for (const int fuse : {0, 1}) {
        Tensors in = coupling_inputs(map, {1, 21, query_heads, 2, 16, 8, 2, 2}, DType::f64);
        for (Tensor& t : in) set_requires_grad(t);
        const Tensor y = (fuse != 0 ? fused(map, in, 2) : composite(map, in, 2))[used];
        backward(y, random_tensor(y.shape(), -1, 1, 9));
        for (const Tensor& t : in) grads[fuse].push_back(grad(t));
      }
      for (std::size_t i = 0; i < grads[0].size(); ++i) {
        EXPECT_EQ(compare("gradient", grads[1][i], grads[0][i], {1e-10, 1e-10}), "") << i;
      }
    }
  }
}

TEST_P(Coupling, SecondBackwardAddsIntoTheLeavesBuffers) {
  const Map map = GetParam();
  Tensors in = coupling_inputs(map, {1, 40, 2, 2, 16, 8, 2, 1}, DType::f64);
  for (std::size_t i = 2; i < in.size(); ++i) set_requires_grad(in[i]);
  const auto step = [&] {
    const Tensors out = fused(map, in, 1);
    backward(weighted_sum(
        out, {random_tensor(out[0].shape(), -1, 1, 5), random_tensor(out[1].shape(), -1, 1, 6)}));
  };
  step();
  Tensors once;
  std::vector<const double*> buffers;
  for (std::size_t i = 2; i < in.size(); ++i) {
    once.push_back(clone(grad(in[i])));
    buffers.push_back(grad(in[i]).data<double>());
  }
  step();
  for (std::size_t i = 2; i < in.size(); ++i) {
    EXPECT_EQ(grad(in[i]).data<double>(), buffers[i - 2]);
    EXPECT_EQ(compare("gradient", grad(in[i]), scale(once[i - 2], 2), {1e-14, 1e-14}), "");
  }
}

TEST_P(Coupling, NanStaysInItsTokenAndHead) {
  const Map map = GetParam();
  for (const std::int64_t width : {5, 16}) {
    Tensors in = coupling_inputs(map, {1, 70, 2, 2, width, 8, 2, 1}, DType::f32);
    const std::size_t moved = map == Map::uncoupled_k ? 1 : 0;
    Tensor poisoned = clone(in[moved]);
    poisoned.mutable_data<float>()[33 * 2 * width + 1] = std::nanf("");  // token 33, head 0
    in[moved] = poisoned;
    const Tensors out = fused(map, in, 2);
    bool found = false;
    for (const Tensor& t : out) {
      const std::vector<double> v = values(t);
      for (std::size_t i = 0; i < v.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i) / width;
        ASSERT_TRUE(row == 33 * 2 || std::isfinite(v[i])) << i;
        // Through f it reaches every column, not only the one it came in.
        found = found || (std::isnan(v[i]) && static_cast<std::int64_t>(i) % width != 1);
      }
    }
    EXPECT_TRUE(found);
  }
}

std::string message(Map map, const Tensors& in, int steps = 1, bool run_back = false) {
  try {
    fused(map, in, steps, run_back);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST_P(Coupling, ErrorsNameTheShapes) {
  const Map map = GetParam();
  const Tensors in = coupling_inputs(map, {1, 2, 4, 2, 8, 3, 2, 1}, DType::f32);
  const auto with = [&](std::size_t i, const Shape& shape) {
    Tensors bad = in;
    bad[i] = Tensor::zeros(shape, DType::f32);
    return message(map, bad);
  };
  const std::string op = name_of(map);
  EXPECT_EQ(with(0, {2, 4, 8}), op + ": q is [2, 4, 8], expected [B, T, Hq, D]");
  EXPECT_EQ(with(0, {1, 2, 3, 8}),
            op + ": 3 query heads do not share 2 key heads evenly; got q [1, 2, 3, 8], k "
                 "[1, 2, 2, 8]");
  EXPECT_EQ(with(1, {1, 3, 2, 8}),
            op + ": k is [1, 3, 2, 8], expected [1, 2, Hkv, 8], as q [1, 2, 4, 8]");
  EXPECT_EQ(message(map, in, 0), op + ": steps is 0, expected 1 or more");
  if (map == Map::affine) {
    EXPECT_EQ(with(2, {2, 3, 8}), op + ": w1 is [2, 3, 8], expected [2 or 1, 2, h, 8]");
    EXPECT_EQ(with(2, {2, 1, 3, 8}), op + ": w1 is [2, 1, 3, 8], expected [2 or 1, 2, h, 8]");
    EXPECT_EQ(with(3, {2, 2, 8, 3}),
              op + ": w2 is [2, 2, 8, 3], expected [2, 2, 16, 3], as w1 is [2, 2, 3, 8]");
    return;
  }
  EXPECT_EQ(with(2, {3, 3, 8}), op + ": w1 is [3, 3, 8], expected [2 or 1, h, 8]");
  EXPECT_EQ(with(3, {2, 3, 8}),
            concat(op, ": w2 is [2, 3, 8], expected [2, ",
                   map == Map::hamiltonian_potential ? 1 : 8, ", 3], as w1 is [2, 3, 8]"));
  EXPECT_EQ(with(4, {1}), op + ": dt is [1], expected [2], one per key head");
  const Tensors shared = coupling_inputs(map, {1, 2, 4, 2, 8, 3, 1, 1}, DType::f32);
  Tensors bad = shared;
  bad[4] = Tensor::zeros({3}, DType::f32);
  EXPECT_EQ(message(map, bad), op +
                                   ": dt is [3], expected [2], one per key head, or [1] for all of "
                                   "them, as for the net");
}

TEST_P(Coupling, OnlyInvertibleMapsRunBack) {
  const Map map = GetParam();
  const Tensors in = coupling_inputs(map, {1, 2, 4, 2, 8, 3, 2, 1}, DType::f32);
  EXPECT_EQ(message(map, in, 1, true), is_invertible(map)
                                           ? "no error"
                                           : name_of(map) +
                                                 ": run_back is true, expected false: this map is "
                                                 "not inverted");
}

}  // namespace
}  // namespace duet::test
