// Matrix products on the GPU against the cpu's, where the strides get interesting: the table's
// functions are called with views that an op may hand them, every tensor in memory of its own.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "ops/matmul/gemm_scratch.h"
#include "ops/matmul/matmul_kernels.h"
#include "runtime/cuda_status.h"
#include "runtime/launch_count.h"
#include "runtime/memory_ops.h"
#include "runtime/random.h"
#include "tests/runtime/gpu.h"
#if DUET_SIM_CUDA
#include "tests/sim_cuda/runtime.h"
#endif

namespace duet::test {
namespace {

Tensor numbers(const Shape& shape, std::uint64_t seed) {
  Tensor t = Tensor::empty(shape, DType::f32);
  fill_normal(t, {.seed = seed, .use = kUseTest}, 0, 1);
  return t;
}

double largest_difference(const Tensor& expected, const Tensor& there) {
  const Tensor x = contiguous_copy(expected);
  const Tensor y = to_device(there, kCpu);
  double largest = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double d = std::fabs(static_cast<double>(x.data<float>()[i]) -
                               static_cast<double>(y.data<float>()[i]));
    if (!(d <= largest)) largest = d;  // NaN too
  }
  return largest;
}

// Largest |sum - exact|.
double error_of_sum(const Tensor& exact, const Tensor& sum) {
  double largest = 0;
  for (std::int64_t i = 0; i < exact.numel(); ++i) {
    const double d = std::fabs(static_cast<double>(sum.data<float>()[i]) - exact.data<double>()[i]);
    if (!(d <= largest)) largest = d;
  }
  return largest;
}

// A window of a whole tensor, on the cpu and on the GPU.
struct Operand {
  Tensor here, there;

  Operand(const Shape& shape, std::uint64_t seed)
      : here(numbers(shape, seed)), there(to_device(here, kCuda)) {}
  Operand(Tensor h, Tensor t) : here(std::move(h)), there(std::move(t)) {}
  template <class F>
  Operand viewed(F&& f) const {
    return {f(here), f(there)};
  }
  Operand transposed() const {
    return viewed([](const Tensor& t) { return t.transpose_view(-1, -2); });
  }
  Operand expanded(const Shape& shape) const {
    return viewed([&](const Tensor& t) { return t.expand_view(shape); });
  }
};

// The cpu's kernels, with the scratch that they want.
void gemm_here(const Tensor& a, const Tensor& b, Tensor& c, bool accumulate) {
  const View out = c.mutable_view();
  Tensor scratch = gemm_scratch(a.view(), b.view(), out, accumulate, kCpu);
  matmul_cpu.gemm(a.view(), b.view(), out, accumulate, scratch_view(scratch));
}
void linear_here(const Tensor& x, const Tensor& weight, ConstView bias, Tensor& y) {
  const View out = y.mutable_view();
  Tensor scratch = linear_scratch(x.view(), weight.view(), bias, out, kCpu);
  matmul_cpu.linear(x.view(), weight.view(), bias, out, scratch_view(scratch));
}

class MatmulCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
    pass_through_ = allocator(kCuda).set_pass_through(true);
  }
  void TearDown() override {
    if (cuda_status().usable) {
      allocator(kCuda).set_pass_through(pass_through_);
    }
  }
  static const MatmulKernels& cuda() { return *matmul_kernels.cuda; }

  // c = and += a @ b
  static void expect_product(const Operand& a, const Operand& b, const Shape& shape) {
    for (const bool accumulate : {false, true}) {
      Operand c(shape, 9);
      gemm_here(a.here, b.here, c.here, accumulate);
      cuda().gemm(a.there.view(), b.there.view(), c.there.mutable_view(), accumulate, {});
      EXPECT_LT(largest_difference(c.here, c.there), 1e-5)
          << a.here.shape() << a.here.strides() << " x " << b.here.shape() << b.here.strides();
    }
  }

 private:
  bool pass_through_ = false;
};

TEST_F(MatmulCuda, TransposesAndSlices) {
  const Operand a({5, 7}, 1), at({7, 5}, 2), b({7, 4}, 3), bt({4, 7}, 4), wide({9, 20}, 5);
  expect_product(a, b, {5, 4});
  expect_product(at.transposed(), b, {5, 4});
  expect_product(a, bt.transposed(), {5, 4});
  expect_product(at.transposed(), bt.transposed(), {5, 4});
  const auto window = [](const Tensor& t) { return t.slice_view(0, 2, 7).slice_view(1, 3, 10); };
  expect_product(wide.viewed(window), b, {5, 4});  // begins at an odd address
}

TEST_F(MatmulCuda, SizesOfOne) {
  for (const Shape& mkn : {Shape{1, 1, 1}, {1, 7, 3}, {4, 1, 3}, {4, 5, 1}, {1, 1, 6}, {6, 1, 1}}) {
    const Operand a({mkn[0], mkn[1]}, 1), b({mkn[1], mkn[2]}, 2);
    const Operand at({mkn[1], mkn[0]}, 3), bt({mkn[2], mkn[1]}, 4);
    expect_product(a, b, {mkn[0], mkn[2]});
    expect_product(at.transposed(), bt.transposed(), {mkn[0], mkn[2]});
    expect_product(at.transposed(), b, {mkn[0], mkn[2]});
    expect_product(a, bt.transposed(), {mkn[0], mkn[2]});
  }
}

TEST_F(MatmulCuda, Batches) {
  const Operand a({2, 3, 5, 7}, 1), b({2, 3, 7, 4}, 2);
  expect_product(a, b, {2, 3, 5, 4});
  expect_product(a, Operand({7, 4}, 3).expanded({2, 3, 7, 4}), {2, 3, 5, 4});
  expect_product(Operand({5, 7}, 4).expanded({2, 3, 5, 7}), b, {2, 3, 5, 4});
  expect_product(a, Operand({3, 7, 4}, 5).expanded({2, 3, 7, 4}), {2, 3, 5, 4});
  expect_product(a, Operand({2, 1, 7, 4}, 5).expanded({2, 3, 7, 4}), {2, 3, 5, 4});
  // Heads lie inside rows: no single step walks all batches.
  const auto heads = [](const Tensor& t) { return t.transpose_view(1, 2); };
  const Operand q = Operand({2, 5, 3, 7}, 6).viewed(heads);
  const Operand k = Operand({2, 6, 3, 7}, 7).viewed(heads);
  expect_product(q, k.transposed(), {2, 3, 5, 6});
  expect_product(Operand({2, 3, 4, 5, 7}, 8), Operand({3, 4, 7, 2}, 9).expanded({2, 3, 4, 7, 2}),
                 {2, 3, 4, 5, 2});
}

TEST_F(MatmulCuda, NothingToMultiply) {
  expect_product(Operand({5, 0}, 1), Operand({0, 4}, 2), {5, 4});  // zeros, or c as it was
  expect_product(Operand({2, 5, 0}, 1), Operand({2, 0, 4}, 2), {2, 5, 4});
  expect_product(Operand({0, 7}, 1), Operand({7, 4}, 2), {0, 4});
  expect_product(Operand({5, 7}, 1), Operand({7, 0}, 2), {5, 0});
  expect_product(Operand({0, 5, 7}, 1), Operand({0, 7, 4}, 2), {0, 5, 4});
}

TEST_F(MatmulCuda, WritesIntoAWindow) {
  const Operand a({2, 5, 7}, 1), b({2, 7, 4}, 2), c({2, 6, 9}, 3);
  const auto window = [](const Tensor& t) { return t.slice_view(1, 1, 6).slice_view(2, 2, 6); };
  Operand inside = c.viewed(window);
  gemm_here(a.here, b.here, inside.here, true);
  cuda().gemm(a.there.view(), b.there.view(), inside.there.mutable_view(), true, {});
  EXPECT_LT(largest_difference(c.here, c.there), 1e-5);  // and nothing outside it
}

TEST_F(MatmulCuda, Linear) {
  for (const Shape& nio : {Shape{5, 7, 4}, {5, 0, 4}, {0, 7, 4}, {5, 7, 0}, {1, 1, 1}}) {
    const Operand x({nio[0], nio[1]}, 1), weight({nio[2], nio[1]}, 2), bias({nio[2]}, 3);
    for (const bool with_bias : {true, false}) {
      Operand y({nio[0], nio[2]}, 4);
      linear_here(x.here, weight.here, with_bias ? bias.here.view() : ConstView{}, y.here);
      cuda().linear(x.there.view(), weight.there.view(),
                    with_bias ? bias.there.view() : ConstView{}, y.there.mutable_view(), {});
      EXPECT_LT(largest_difference(y.here, y.there), 1e-5) << nio << ' ' << with_bias;
    }
  }
}

TEST_F(MatmulCuda, ABiasMayBeginAnywhere) {
  const Operand x({5, 7}, 1), weight({4, 7}, 2), whole({9}, 3);
  Operand y({5, 4}, 4);
  const Operand bias = whole.viewed([](const Tensor& t) { return t.slice_view(0, 3, 7); });
  linear_here(x.here, weight.here, bias.here.view(), y.here);
  cuda().linear(x.there.view(), weight.there.view(), bias.there.view(), y.there.mutable_view(), {});
  EXPECT_LT(largest_difference(y.here, y.there), 1e-5);
}

TEST_F(MatmulCuda, ColumnSum) {
  for (const Shape& shape :
       {Shape{0, 3}, {1, 1}, {15, 7}, {16, 8}, {17, 9}, {300, 40}, {4100, 9}}) {
    for (const bool accumulate : {false, true}) {
      const Operand x(shape, 1), xt({shape[1], shape[0]}, 2);
      for (const Operand& rows : {x, xt.transposed()}) {
        Operand out({shape[1]}, 3);
        Tensor exact = Tensor::empty({shape[1]}, DType::f64);
        Tensor x64 = Tensor::empty(shape, DType::f64);
        copy(exact, out.here);
        copy(x64, rows.here);
        matmul_cpu.weight_gradient(x64.view(), {}, {}, exact.mutable_view(), false, accumulate, {});
        cuda().weight_gradient(rows.there.view(), {}, {}, out.there.mutable_view(), false,
                               accumulate, {});
        // Of the size of one rounding per 64 rows; the cpu's own sums are two to three times off.
        const double bound = 5e-7 * std::sqrt(static_cast<double>(shape[0] + 1));
        EXPECT_LT(error_of_sum(exact, to_device(out.there, kCpu)), bound) << shape;
      }
    }
  }
}

// Of one call of the table on the GPU.
template <class... Params, class... Args>
std::uint64_t launches(void (*MatmulKernels::*kernel)(Params...), Args&&... args) {
  start_counting_launches();
  matmul_kernels.launch(kCuda, kernel, std::forward<Args>(args)...);
  std::uint64_t sum = 0;
  for (const LaunchCount& count : stop_counting_launches()) sum += count.launches;
  return sum;
}

// The simulated cublasLt has every epilogue; NVIDIA's promises none, and then there is one more
// launch.
void expect_one_launch(std::uint64_t count, const Shape& shape) {
#if DUET_SIM_CUDA
  EXPECT_EQ(count, 1U) << shape;
#else
  EXPECT_TRUE(count == 1 || count == 2) << count << shape;
#endif
}

// dw and db on the GPU against the cpu's; the launches that they took.
std::uint64_t expect_weight_gradient(const Operand& dy, const Operand& x, Operand& dw, Operand& db,
                                     bool accumulate_dw, bool accumulate_db) {
  const View dw_here = dw.here.mutable_view();
  Tensor scratch =
      gemm_scratch(transposed(dy.here.view()), x.here.view(), dw_here, accumulate_dw, kCpu);
  matmul_cpu.weight_gradient(dy.here.view(), x.here.view(), dw_here, db.here.mutable_view(),
                             accumulate_dw, accumulate_db, scratch_view(scratch));
  const std::uint64_t count = launches(
      &MatmulKernels::weight_gradient, dy.there.view(), x.there.view(), dw.there.mutable_view(),
      db.there.mutable_view(), accumulate_dw, accumulate_db, View{});
  EXPECT_LT(largest_difference(dw.here, dw.there), 3e-5) << dy.here.shape() << x.here.shape();
  EXPECT_LT(largest_difference(db.here, db.there), 3e-5) << dy.here.shape() << x.here.shape();
  return count;
}

TEST_F(MatmulCuda, TheBiasGradientComesWithTheWeights) {
  for (const Shape& noi : {Shape{6, 4, 5}, {1, 1, 1}, {70, 40, 24}, {17, 13, 9}, {5, 1, 3}}) {
    const Operand dy({noi[0], noi[1]}, 1), x({noi[0], noi[2]}, 2);
    for (const bool accumulate_dw : {false, true}) {
      for (const bool accumulate_db : {false, true}) {
        Operand dw({noi[1], noi[2]}, 3), db({noi[1]}, 4);
        const std::uint64_t count =
            expect_weight_gradient(dy, x, dw, db, accumulate_dw, accumulate_db);
        if (accumulate_db) {
          EXPECT_EQ(count, 2U);
        } else {
          expect_one_launch(count, noi);
        }
      }
    }
    const Operand dyt = Operand({noi[1], noi[0]}, 5).transposed();  // its columns lie together
    const Operand wide({noi[1], noi[2] + 3}, 6), long_db({noi[1] + 1}, 7);
    Operand inside = wide.viewed([&](const Tensor& t) { return t.slice_view(1, 2, noi[2] + 2); });
    Operand db({noi[1]}, 8);
    expect_one_launch(expect_weight_gradient(dyt, x, inside, db, false, false), noi);
    EXPECT_LT(largest_difference(wide.here, wide.there), 3e-5);  // and nothing outside it
    // cublasLt reads and writes vectors of a bias, so that it cannot begin anywhere.
    Operand odd = long_db.viewed([&](const Tensor& t) { return t.slice_view(0, 1, noi[1] + 1); });
    Operand dw({noi[1], noi[2]}, 9);
    EXPECT_EQ(expect_weight_gradient(dy, x, dw, odd, false, false), 2U);
  }
  for (const Shape& noi : {Shape{0, 4, 5}, {6, 0, 5}, {6, 4, 0}}) {
    const Operand dy({noi[0], noi[1]}, 1), x({noi[0], noi[2]}, 2);
    Operand dw({noi[1], noi[2]}, 3), db({noi[1]}, 4);
    expect_weight_gradient(dy, x, dw, db, false, false);
  }
}

// h and y on the GPU against the cpu's; the launches that they took.
std::uint64_t expect_linear_gelu(const Shape& nio, bool with_bias) {
  const Operand x({nio[0], nio[1]}, 1), weight({nio[2], nio[1]}, 2), bias({nio[2]}, 3);
  Operand h({nio[0], nio[2]}, 4), y({nio[0], nio[2]}, 5);
  const ConstView bias_here = with_bias ? bias.here.view() : ConstView{};
  const View h_here = h.here.mutable_view();
  Tensor scratch = linear_scratch(x.here.view(), weight.here.view(), bias_here, h_here, kCpu);
  matmul_cpu.linear_gelu_tanh(x.here.view(), weight.here.view(), bias_here, h_here,
                              y.here.mutable_view(), scratch_view(scratch));
  const std::uint64_t count =
      launches(&MatmulKernels::linear_gelu_tanh, x.there.view(), weight.there.view(),
               with_bias ? bias.there.view() : ConstView{}, h.there.mutable_view(),
               y.there.mutable_view(), View{});
  EXPECT_LT(largest_difference(h.here, h.there), 2e-5) << nio << ' ' << with_bias;
  EXPECT_LT(largest_difference(y.here, y.there), 2e-5) << nio << ' ' << with_bias;
  return count;
}

TEST_F(MatmulCuda, LinearGeluTanhIsOneLaunchWhereWidthsAreWholeVectors) {
  for (const bool with_bias : {true, false}) {
    for (const Shape& nio : {Shape{5, 7, 8}, {1, 1, 8}, {70, 33, 64}, {3, 9, 24}}) {
      expect_one_launch(expect_linear_gelu(nio, with_bias), nio);
      expect_one_launch(expect_linear_gelu(nio, with_bias), nio);  // the same plan, other memory
    }
    for (const Shape& nio : {Shape{5, 7, 4}, {1, 1, 1}, {6, 5, 13}, {5, 0, 8}}) {
      EXPECT_EQ(expect_linear_gelu(nio, with_bias), 2U) << nio;
    }
    for (const Shape& nio : {Shape{0, 7, 8}, {5, 7, 0}}) {
      EXPECT_EQ(expect_linear_gelu(nio, with_bias), 0U) << nio;
    }
  }
}

#if DUET_SIM_CUDA
// Shapes of no other test: what cublasLt offers is asked once per shape.
TEST_F(MatmulCuda, DoesWithoutEpiloguesThatCublasLtDoesNotOffer) {
  sim::runtime_options().no_epilogues = 32 | 512;
  EXPECT_EQ(expect_linear_gelu({9, 11, 32}, true), 2U);
  EXPECT_EQ(expect_linear_gelu({9, 11, 32}, false), 2U);
  const Operand dy({9, 12}, 1), x({9, 14}, 2);
  Operand dw({12, 14}, 3), db({12}, 4);
  EXPECT_EQ(expect_weight_gradient(dy, x, dw, db, true, false), 2U);
  sim::runtime_options().no_epilogues = 0;
  EXPECT_EQ(expect_linear_gelu({9, 12, 32}, true), 1U);
}
#endif

TEST_F(MatmulCuda, CountsLaunchesAndBytes) {
  const Operand a({8, 8}, 1), b({8, 8}, 2);
  Tensor c = Tensor::empty({8, 8}, DType::f32, kCuda);
  start_counting_launches();
  for (int i = 0; i < 3; ++i) {
    matmul_kernels.launch(kCuda, &MatmulKernels::gemm, a.there.view(), b.there.view(),
                          c.mutable_view(), false, View{});
  }
  const std::vector<LaunchCount> counts = stop_counting_launches();
  ASSERT_EQ(counts.size(), 1U);
  EXPECT_EQ(counts[0].op + " " + counts[0].kernel, "matmul cublaslt_gemm");
  EXPECT_EQ(counts[0].launches, 3U);
  EXPECT_EQ(counts[0].bytes, 3U * 3U * 256U);
}

// Its work space was taken before, and is in no allocator.
TEST_F(MatmulCuda, TakesNoMemoryPerProduct) {
  const Operand a({8, 8}, 1), b({8, 8}, 2);
  Tensor c = Tensor::empty({8, 8}, DType::f32, kCuda);
  cuda().gemm(a.there.view(), b.there.view(), c.mutable_view(), false, {});
  const MemoryStats before = allocator(kCuda).stats();
  cuda().gemm(a.there.view(), b.transposed().there.view(), c.mutable_view(), true, {});
  EXPECT_EQ(allocator(kCuda).stats().allocations, before.allocations);
  EXPECT_EQ(allocator(kCuda).stats().reserved, before.reserved);
}

}  // namespace
}  // namespace duet::test
