// Shapes, views and versions: what fits works, what does not is refused before it can touch memory.
#include "runtime/tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "runtime/strided.h"
#include "tests/runtime/errors.h"

namespace duet::test {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

Tensor counted(const Shape& shape) {
  Tensor t = Tensor::empty(shape, DType::f64);
  double* p = t.mutable_data<double>();
  std::iota(p, p + t.numel(), 0.0);
  return t;
}

// All elements in row-major order, by plain index arithmetic.
std::vector<double> elements(const Tensor& t) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    std::int64_t rest = i, offset = 0;
    for (int d = t.ndim() - 1; d >= 0; --d) {
      offset += rest % t.size(d) * t.stride(d);
      rest /= t.size(d);
    }
    out.push_back(t.data<double>()[offset]);
  }
  return out;
}

using Values = std::vector<double>;

TEST(Shape, ComparesPrintsAndRefuses) {
  EXPECT_EQ(concat(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ(concat(Shape{}), "[]");
  EXPECT_TRUE((Shape{2, 3} == Shape{2, 3}));
  EXPECT_FALSE((Shape{2, 3} == Shape{2, 3, 1}));
  EXPECT_EQ((Shape{}).numel(), 1);
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Strides{12, 4, 1}));
  error_of(ErrorKind::shape, [] { (void)Dims::filled(9, 1); });
  EXPECT_EQ(normalize_dim(-1, 3, "op"), 2);
  EXPECT_EQ(error_of(ErrorKind::index, [] { normalize_dim(3, 3, "op"); }),
            "op: dim 3 is out of range for a 3-d tensor (valid: -3..2)");
}

TEST(Shape, Broadcasts) {
  EXPECT_EQ(broadcast_shapes({5, 1, 4}, {3, 1}, "op"), (Shape{5, 3, 4}));
  EXPECT_EQ(broadcast_shapes({}, {2}, "op"), (Shape{2}));
  EXPECT_EQ(broadcast_shapes({0}, {1}, "op"), (Shape{0}));
  error_of(ErrorKind::shape, [] { broadcast_shapes({0}, {2}, "op"); });
  expect_in("op: shapes do not broadcast: got [2, 3] and [2, 4]", error_of(ErrorKind::shape, [] {
              broadcast_shapes({2, 3}, {2, 4}, "op");
            }));
}

TEST(Device, MetaStandsForAnother) {
  EXPECT_EQ(kCpu.kernels(), DeviceType::cpu);
  EXPECT_EQ(kCuda.kernels(), DeviceType::cuda);
  EXPECT_EQ(kMeta.kernels(), DeviceType::cpu);
  EXPECT_EQ(kMetaCuda.kernels(), DeviceType::cuda);
  EXPECT_EQ(meta_for(kCuda), kMetaCuda);
  EXPECT_EQ(meta_for(kMetaCuda), kMetaCuda);
  EXPECT_EQ(meta_for(kCpu), kMeta);
  EXPECT_FALSE(kMeta == kMetaCuda);
  EXPECT_EQ(concat(kMeta, ", ", kMetaCuda), "meta, meta (for cuda)");
  EXPECT_EQ(Tensor::zeros({2}, DType::f32, kMetaCuda).device(), kMetaCuda);
  EXPECT_EQ(&allocator(kMeta), &allocator(kMetaCuda));
}

TEST(Tensor, MakesAndRefuses) {
  EXPECT_EQ(elements(Tensor::full({2, 2}, 7, DType::f64)), Values(4, 7.0));
  EXPECT_EQ(Tensor::zeros({}, DType::i64).item(), 0.0);
  EXPECT_EQ(Tensor::empty({0, 5}, DType::f32).nbytes(), 0U);
  EXPECT_EQ(Tensor::full({1}, 2.5, DType::bf16).item(), 2.5);
  for (const Shape& bad : {Shape{-1}, Shape{2, -3}, Shape{kHuge, 2}, Shape{1LL << 40, 1LL << 40},
                           Shape{0, kHuge, kHuge}, Shape{kHuge, kHuge, 0}}) {
    error_of(ErrorKind::shape, [&] { Tensor::empty(bad, DType::f32); });
  }
  error_of(ErrorKind::memory, [] { Tensor::empty({1LL << 58}, DType::u8); });
  error_of(ErrorKind::dtype, [] { Tensor::empty({1}, DType::f32).data<double>(); });
  error_of(ErrorKind::device, [] { Tensor::empty({1}, DType::f32, kMeta).data<float>(); });
  error_of(ErrorKind::device, [] { Tensor::empty({1}, DType::f32, kMeta).item(); });
  error_of(ErrorKind::shape, [] { Tensor::empty({2}, DType::f32).item(); });
  error_of(ErrorKind::shape, [] { Tensor().item(); });
  error_of(ErrorKind::device, [] { Tensor::empty({1}, DType::f32, {DeviceType::cuda, 1}); });
}

TEST(Tensor, SlicesTransposesReshapes) {
  const Tensor t = counted({3, 4});
  EXPECT_EQ(elements(t.slice_view(0, 1, 2)), (Values{4, 5, 6, 7}));
  EXPECT_EQ(elements(t.slice_view(-1, 0, 4, 3)), (Values{0, 3, 4, 7, 8, 11}));
  EXPECT_EQ(t.slice_view(1, 1, 4, kHuge).shape(), (Shape{3, 1}));
  EXPECT_EQ(t.slice_view(1, 2, 2).numel(), 0);
  EXPECT_EQ(elements(t.transpose_view(0, 1).slice_view(0, 1, 2)), (Values{1, 5, 9}));
  EXPECT_FALSE(t.transpose_view(0, 1).is_contiguous());
  EXPECT_TRUE(t.slice_view(0, 1, 3).is_contiguous());
  EXPECT_EQ(t.reshape_view({2, -1}).shape(), (Shape{2, 6}));
  EXPECT_EQ(t.slice_view(0, 1, 2).reshape_view({2, 2}).offset(), 4);
  EXPECT_EQ(counted({0, 3}).reshape_view({-1, 3}).shape(), (Shape{0, 3}));
  EXPECT_TRUE(counted({1, 3}).transpose_view(0, 1).is_contiguous());
  for (const auto& [begin, end, step] :
       {std::array<std::int64_t, 3>{-1, 2, 1}, {2, 1, 1}, {0, 5, 1}, {0, 4, 0}, {0, 4, -1}}) {
    error_of(ErrorKind::index, [&, b = begin, e = end, s = step] { t.slice_view(1, b, e, s); });
  }
  for (const Shape& bad : {Shape{5}, Shape{5, -1}, Shape{-1, -1}, Shape{-2, -6}, Shape{kHuge, 4},
                           Shape{1LL << 62, 4, 3}}) {
    error_of(ErrorKind::shape, [&] { t.reshape_view(bad); });
  }
  error_of(ErrorKind::shape, [] { counted({0}).reshape_view({-1, -1}); });
  error_of(ErrorKind::shape, [&] { t.transpose_view(0, 1).reshape_view({12}); });
  error_of(ErrorKind::index, [&] { t.transpose_view(0, 2); });
}

TEST(Tensor, ExpandsAndGuardsSharedBytes) {
  const Tensor row = counted({1, 3});
  Tensor wide = row.expand_view({2, 2, 3});
  EXPECT_EQ(elements(wide), (Values{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(wide.strides(), (Strides{0, 0, 1}));
  expect_in("elements of the tensor share bytes: got shape [2, 2, 3] with strides [0, 0, 1]",
            error_of(ErrorKind::shape, [&] { wide.mutable_view(); }));
  EXPECT_EQ(row.version(), wide.version());
  Tensor narrow = wide.slice_view(0, 0, 1).slice_view(1, 0, 1);
  (void)narrow.mutable_view();  // one element along each shared dimension: nothing is shared
  for (const Shape& bad : {Shape{3}, Shape{2}, Shape{1, 4}, Shape{-5, 3}, Shape{kHuge, kHuge, 3}}) {
    error_of(ErrorKind::shape, [&] { row.expand_view(bad); });
  }
}

TEST(Tensor, AsStridedStaysInTheStorage) {
  const Tensor t = counted({10});
  EXPECT_EQ(elements(t.as_strided({2, 3}, {3, 2}, 1)), (Values{1, 3, 5, 4, 6, 8}));
  EXPECT_EQ(elements(t.as_strided({3}, {-4}, 9)), (Values{9, 5, 1}));
  EXPECT_EQ(t.as_strided({0}, {100}, 10).numel(), 0);
  const struct {
    Shape shape;
    Strides strides;
    std::int64_t offset;
  } bad[] = {{{11}, {1}, 0},          {{2}, {1}, 9},          {{3}, {-4}, 7},    {{1}, {1}, -1},
             {{1}, {1}, 10},          {{-2}, {1}, 0},         {{2}, {kHuge}, 0}, {{2, 2}, {1}, 0},
             {{3, 3}, {kHuge, 1}, 0}, {{2, 2}, {20, -20}, 0}, {{2}, {1}, kHuge}, {{0}, {1}, 11}};
  for (const auto& row : bad) {
    error_of(ErrorKind::shape, [&] { t.as_strided(row.shape, row.strides, row.offset); });
  }
}

TEST(Tensor, WritesBumpTheVersionOfAllViews) {
  Tensor t = Tensor::empty({4}, DType::f64);
  const Tensor view = t.slice_view(0, 1, 2);
  const auto before = view.version();
  t.mutable_data<double>()[1] = 42;
  EXPECT_EQ(view.version(), before + 1);
  EXPECT_EQ(view.item(), 42);
  (void)t.mutable_view();
  EXPECT_EQ(view.version(), before + 2);
  (void)t.view();
  (void)t.data<double>();
  EXPECT_EQ(view.version(), before + 2);
}

TEST(Tensor, StorageLivesAsLongAsAView) {
  const auto live = allocator(kCpu).stats().allocated;
  {
    Tensor view;
    {
      const Tensor t = counted({1000});
      view = t.slice_view(0, 999, 1000);
    }
    EXPECT_EQ(view.item(), 999);
    EXPECT_GE(allocator(kCpu).stats().allocated, live + 8000);
  }
  EXPECT_EQ(allocator(kCpu).stats().allocated, live);
}

// for_each_row visits what plain index arithmetic visits, in the same order.
TEST(Strided, RowsEqualPlainIndexing) {
  const Tensor base = counted({4, 3, 5, 2});
  const Tensor tensors[] = {
      base,
      base.transpose_view(0, 2),
      base.transpose_view(1, 3).slice_view(0, 0, 4, 2),
      base.slice_view(1, 1, 2).expand_view({4, 3, 5, 2}),
      base.slice_view(2, 0, 5, 2),
      base.slice_view(0, 1, 1),
      base.slice_view(0, 3, 4).slice_view(3, 1, 2),
      counted({}),
      base.as_strided({3, 4}, {-1, -3}, 50),
  };
  for (const Tensor& t : tensors) {
    SCOPED_TRACE(concat(t.shape(), " ", t.strides()));
    const Tensor other = counted({t.numel()}).reshape_view(t.shape());
    Values seen;
    std::int64_t expected = 0;
    for_each_row<2>(t.shape(), {t.strides(), other.strides()},
                    [&](auto offsets, std::int64_t n, auto steps) {
                      for (std::int64_t i = 0; i < n; ++i) {
                        seen.push_back(t.data<double>()[offsets[0] + i * steps[0]]);
                        EXPECT_EQ(offsets[1] + i * steps[1], expected++);
                      }
                    });
    EXPECT_EQ(seen, elements(t));
  }
  int rows = 0;  // back-to-back dimensions are walked as one
  for_each_row<1>(base.shape(), {base.strides()}, [&](auto, std::int64_t n, auto) {
    ++rows;
    EXPECT_EQ(n, 120);
  });
  EXPECT_EQ(rows, 1);
}

TEST(MemoryScope, NestsAndReenters) {
  EXPECT_EQ(scope_path(current_scope()), "");
  ScopeId inner = 0;
  {
    const MemoryScope a("blocks"), b("3");
    {
      const MemoryScope c("attn");
      inner = current_scope();
      EXPECT_EQ(scope_path(inner), "blocks.3.attn");
      std::thread([] { EXPECT_EQ(current_scope(), 0U); }).join();  // each thread has its own
    }
    EXPECT_EQ(scope_path(current_scope()), "blocks.3");
  }
  const MemoryScope again(inner);
  EXPECT_EQ(scope_path(current_scope()), "blocks.3.attn");
  const MemoryScope deeper("probs");
  EXPECT_EQ(scope_path(current_scope()), "blocks.3.attn.probs");
}

}  // namespace
}  // namespace duet::test
