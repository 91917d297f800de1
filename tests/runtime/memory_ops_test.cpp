// fill, copy and accumulate over every pair of dtypes and many strides.
#include "runtime/memory_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "runtime/cpu/parallel.h"
#include "tests/runtime/errors.h"

namespace duet::test {
namespace {

constexpr DType kAll[] = {DType::f32, DType::f64, DType::bf16, DType::f16,
                          DType::i32, DType::i64, DType::u8};

// Tensors of shape [4, 6] (or its like) seen through different windows; writable ones only.
std::vector<Tensor> windows(DType dtype) {
  return {
      Tensor::full({4, 6}, 1, dtype),
      Tensor::full({6, 4}, 1, dtype).transpose_view(0, 1),
      Tensor::full({4, 18}, 1, dtype).slice_view(1, 2, 18, 3),
      Tensor::full({9, 6}, 1, dtype).slice_view(0, 1, 9, 2),
      Tensor::full({40}, 1, dtype).as_strided({4, 6}, {-6, -1}, 30),
  };
}

double at(const Tensor& t, std::int64_t i, std::int64_t j) {
  return t.slice_view(0, i, i + 1).slice_view(1, j, j + 1).item();
}

TEST(MemoryOps, CopiesEveryTypeAndStride) {
  Tensor numbers = Tensor::empty({4, 6}, DType::f64);
  for (int i = 0; i < 24; ++i) numbers.mutable_data<double>()[i] = i;
  for (const DType from : kAll) {
    for (const Tensor& window : windows(from)) {
      Tensor source = window;
      copy(source, numbers);
      for (const DType to : kAll) {
        for (const Tensor& target_window : windows(to)) {
          Tensor target = target_window;
          copy(target, source);
          for (int i = 0; i < 4; ++i) {
            for (int j = 0; j < 6; ++j) ASSERT_EQ(at(target, i, j), 6 * i + j) << from << to;
          }
        }
      }
    }
  }
}

TEST(MemoryOps, WritesOnlyItsWindow) {
  for (const DType dtype : kAll) {
    Tensor whole = Tensor::full({5, 5}, 3, dtype);
    Tensor window = whole.slice_view(0, 1, 4, 2).slice_view(1, 1, 4);
    fill(window, 9);
    for (int i = 0; i < 5; ++i) {
      for (int j = 0; j < 5; ++j) {
        const bool inside = (i == 1 || i == 3) && 1 <= j && j < 4;
        ASSERT_EQ(at(whole, i, j), inside ? 9 : 3) << dtype << i << j;
      }
    }
  }
}

// Long enough for several threads, in shapes that are cut differently; equal to a plain loop.
TEST(MemoryOps, LargeTensorsMatchPlainLoops) {
  const int threads = num_threads();
  for (const int t : {1, 3}) {
    set_num_threads(t);
    for (const Shape& shape : {Shape{300'001}, Shape{2, 150'000}, Shape{7, 1, 300, 100},
                               Shape{100'000, 3}, Shape{1, 1, 200'003}}) {
      Tensor x = Tensor::empty(shape, DType::f32);
      float* p = x.mutable_data<float>();
      for (std::int64_t i = 0; i < x.numel(); ++i) p[i] = static_cast<float>(i % 1001);
      Tensor y = Tensor::full(shape, 1, DType::f32);
      accumulate(y, x);
      accumulate(y, x);
      const Tensor z = clone(y.transpose_view(0, -1)).transpose_view(0, -1);
      const Tensor back = clone(z);
      for (std::int64_t i = 0; i < x.numel(); ++i) {
        ASSERT_EQ(y.data<float>()[i], 1 + 2 * p[i]);
        ASSERT_EQ(back.data<float>()[i], y.data<float>()[i]);
      }
    }
  }
  set_num_threads(threads);
}

double converted(double value, DType to, DType from = DType::f64) {
  Tensor x = Tensor::full({1}, value, from);
  Tensor y = Tensor::empty({1}, to);
  copy(y, x);
  return y.item();
}

// f64 to 16 bits rounds once: by way of a float, values just off a tie would round twice.
TEST(MemoryOps, DoubleToHalfRoundsOnce) {
  EXPECT_EQ(converted(1 + 0x1p-8 + 0x1p-40, DType::bf16), 1 + 0x1p-7);
  EXPECT_EQ(converted(1 + 0x1p-8, DType::bf16), 1);
  EXPECT_EQ(converted(1 + 3 * 0x1p-8 - 0x1p-40, DType::bf16), 1 + 0x1p-7);
  EXPECT_EQ(converted(-1 - 0x1p-11 - 0x1p-40, DType::f16), -1 - 0x1p-10);
  EXPECT_EQ(converted(65520 - 0x1p-30, DType::f16), 65504);
  EXPECT_EQ(converted(1e300, DType::f16), std::numeric_limits<double>::infinity());
  EXPECT_EQ(converted(-1e300, DType::bf16), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(converted(1e-300, DType::bf16), 0);
  EXPECT_TRUE(std::isnan(converted(std::nan(""), DType::bf16)));
  EXPECT_EQ(converted((1 << 24) + 1.0, DType::f32, DType::i32), 1 << 24);
  EXPECT_EQ(converted((257 << 16) + 1.0, DType::bf16, DType::i32), 258 << 16);
}

TEST(MemoryOps, FloatToIntegerSaturates) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const DType from : {DType::f32, DType::f64, DType::bf16}) {
    EXPECT_EQ(converted(kInf, DType::i32, from), 2147483647.0);
    EXPECT_EQ(converted(-kInf, DType::i32, from), -2147483648.0);
    EXPECT_EQ(converted(kInf, DType::i64, from), 0x1p63);
    EXPECT_EQ(converted(-0x1p63, DType::i64, from), -0x1p63);
    EXPECT_EQ(converted(std::nan(""), DType::i64, from), 0);
    EXPECT_EQ(converted(300, DType::u8, from), 255);
    EXPECT_EQ(converted(-0.75, DType::u8, from), 0);
    EXPECT_EQ(converted(-3, DType::u8, from), 0);
    EXPECT_EQ(converted(-2.75, DType::i32, from), -2);
  }
  EXPECT_EQ(converted(-2147483648.5, DType::i32), -2147483648.0);
  EXPECT_EQ(converted(255.9, DType::u8), 255);
}

TEST(MemoryOps, RefusesWhatDoesNotFit) {
  Tensor a = Tensor::zeros({2, 3}, DType::f32);
  Tensor b = Tensor::zeros({3, 2}, DType::f32);
  EXPECT_EQ(error_of(ErrorKind::shape, [&] { copy(a, b); }),
            "copy: shapes differ: got [3, 2], expected [2, 3]");
  error_of(ErrorKind::shape, [&] { accumulate(a, b); });
  Tensor doubles = Tensor::zeros({2, 3}, DType::f64);
  error_of(ErrorKind::dtype, [&] { accumulate(a, doubles); });
  Tensor ints = Tensor::zeros({2}, DType::i32);
  error_of(ErrorKind::dtype, [&] { accumulate(ints, Tensor::zeros({2}, DType::i32)); });
  error_of(ErrorKind::shape, [&] { copy(a, a.slice_view(0, 0, 2)); });
  error_of(ErrorKind::device, [&] { copy(a, Tensor::empty({2, 3}, DType::f32, kMeta)); });
  Tensor expanded = Tensor::zeros({1, 3}, DType::f32).expand_view({2, 3});
  error_of(ErrorKind::shape, [&] { fill(expanded, 1); });
  error_of(ErrorKind::shape, [&] { accumulate(expanded, a); });
}

TEST(MemoryOps, EmptyExpandedAndMeta) {
  Tensor none = Tensor::empty({0, 3}, DType::f32);
  fill(none, 1);
  accumulate(none, clone(none));
  Tensor out = Tensor::full({2, 3}, 1, DType::f32);
  accumulate(out, Tensor::full({1, 3}, 2, DType::f32).expand_view({2, 3}));
  EXPECT_EQ(at(out, 1, 2), 3);
  EXPECT_TRUE(contiguous_copy(out.transpose_view(0, 1)).is_contiguous());
  EXPECT_EQ(contiguous_copy(out).storage(), out.storage());
  Tensor planned = Tensor::full({1 << 20, 1 << 12}, 1, DType::f64, kMeta);
  accumulate(planned, clone(planned));
  EXPECT_EQ(planned.device(), kMeta);
}

}  // namespace
}  // namespace duet::test
