// fill, copy and accumulate over every pair of dtypes and many strides.
#include "runtime/memory_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
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
  Tensor left = a.slice_view(1, 0, 2);
  error_of(ErrorKind::shape, [&] { copy(left, a.slice_view(1, 1, 3)); });
  error_of(ErrorKind::device, [&] { copy(a, Tensor::empty({2, 3}, DType::f32, kMeta)); });
  Tensor expanded = Tensor::zeros({1, 3}, DType::f32).expand_view({2, 3});
  error_of(ErrorKind::shape, [&] { fill(expanded, 1); });
  error_of(ErrorKind::shape, [&] { accumulate(expanded, a); });
}

Tensor counted(std::int64_t n) {
  Tensor t = Tensor::empty({n}, DType::f32);
  for (std::int64_t i = 0; i < n; ++i) t.mutable_data<float>()[i] = static_cast<float>(i);
  return t;
}
std::vector<double> values_of(const Tensor& t) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < t.numel(); ++i) out.push_back(t.slice_view(0, i, i + 1).item());
  return out;
}

// A window whose elements share bytes has no value to be written; a source that is written before
// it is read gives a result that depends on the order of the loop.
TEST(MemoryOps, OverlapIsRefusedOrRight) {
  const Tensor numbers = counted(16);
  const auto window = [&](const Shape& shape, const Strides& strides, std::int64_t offset) {
    return numbers.as_strided(shape, strides, offset);
  };
  // Itself: rows that share their ends, strides that meet later, a dimension without a step.
  for (Tensor shared : {window({3, 3}, {2, 1}, 0), window({4, 3}, {2, 3}, 0),
                        window({2, 3}, {0, 1}, 0), window({2, 2, 2}, {4, 2, 2}, 0)}) {
    const Tensor source = Tensor::zeros(shared.shape(), DType::f32);
    for (const auto& write :
         std::vector<std::function<void()>>{[&] { fill(shared, 1); }, [&] { copy(shared, source); },
                                            [&] { accumulate(shared, source); }}) {
      expect_in("elements of the tensor share bytes", error_of(ErrorKind::shape, write));
    }
  }
  // Source and destination: shifted by one, reversed roles, transposed, interleaved columns.
  const Tensor square = window({3, 3}, {3, 1}, 0), rows = window({4, 3}, {3, 1}, 0);
  for (const auto& [to, from] : std::vector<std::pair<Tensor, Tensor>>{
           {window({11}, {1}, 1), window({11}, {1}, 0)},
           {window({11}, {1}, 0), window({11}, {1}, 1)},
           {square, square.transpose_view(0, 1)},
           {rows.slice_view(1, 0, 1), rows.slice_view(1, 1, 2)}}) {
    Tensor out = to;
    const Tensor x = from;
    expect_in("accumulate: source and destination overlap: got elements ",
              error_of(ErrorKind::shape, [&] { accumulate(out, x); }));
    expect_in("copy: source and destination overlap: got elements ",
              error_of(ErrorKind::shape, [&] { copy(out, x); }));
  }
  EXPECT_EQ(values_of(numbers), values_of(counted(16)));  // nothing was written
  // The same window, and windows that lie apart.
  Tensor all = counted(12);
  accumulate(all, all);
  copy(all, all);
  EXPECT_EQ(values_of(all), (std::vector<double>{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22}));
  Tensor end = all.slice_view(0, 8, 12);
  accumulate(end, all.slice_view(0, 0, 4));
  EXPECT_EQ(values_of(end), (std::vector<double>{16, 20, 24, 28}));
  copy(end, all.slice_view(0, 4, 8));
  EXPECT_EQ(values_of(end), (std::vector<double>{8, 10, 12, 14}));
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
