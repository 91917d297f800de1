// SavedTensor: stale saves are noticed however they were written, and every byte is counted.
#include "autograd/saved_tensor.h"

#include <gtest/gtest.h>

#include "tests/autograd/test_ops.h"

namespace duet::test {
namespace {

// y = x, keeping y: d/dx = y, to have an op that saves its own output.
struct KeepsOutput {
  static constexpr const char* name = "keeps_output";
  struct Saved {
    SavedTensor y;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    const Tensor y = clone(x);
    saved.y.save_output(y);
    return y;
  }
  Tensor backward(const Saved& saved, const Tensor&) const { return clone(saved.y.get(name)); }
};

struct Way {
  const char* name;
  void (*write)(Tensor&);
};

const Way kWays[] = {
    {"itself", [](Tensor& t) { fill(t, 1); }},
    {"slice",
     [](Tensor& t) {
       Tensor row = t.slice_view(0, 1, 2);
       fill(row, 1);
     }},
    {"transpose",
     [](Tensor& t) {
       Tensor turned = t.transpose_view(0, 1);
       fill(turned, 1);
     }},
    {"reshape",
     [](Tensor& t) {
       Tensor flat = t.reshape_view({6});
       fill(flat, 1);
     }},
    {"detach",
     [](Tensor& t) {
       Tensor detached = t.detach();
       detached.mutable_data<double>()[0] = 1;
     }},
};

class InPlace : public testing::TestWithParam<Way> {};

struct SavesBlock {
  static constexpr const char* name = "saves_block";
  struct Saved {
    SavedTensor x;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.x.save_input(x);
    return clone(x);
  }
  Tensor backward(const Saved& saved, const Tensor& dy) const {
    saved.x.get(name);
    return dy;
  }
};

TEST_P(InPlace, WriteToASavedInputIsNoticed) {
  Tensor a = leaf(2, {2, 3});
  const Tensor y = apply(SavesBlock{}, a);
  const NoGradGuard no_grad;  // writing under no-grad must be noticed too
  GetParam().write(a);
  EXPECT_EQ(error_text([&] {
              backward(y, Tensor::zeros({2, 3}, DType::f64));
            }),
            "saves_block: a tensor saved for backward, [2, 3], was modified in place (version 2, "
            "expected 1); write to a clone instead");
}

INSTANTIATE_TEST_SUITE_P(SavedTensor, InPlace, testing::ValuesIn(kWays),
                         [](const auto& way) { return way.param.name; });

TEST(SavedTensor, WriteToASavedOutputIsNoticed) {
  const Tensor a = leaf(2);
  Tensor y = apply(KeepsOutput{}, a);
  fill(y, 7);
  EXPECT_NE(error_text([&] { backward(y); }).find("keeps_output: a tensor saved for backward"),
            std::string::npos);
}

TEST(SavedTensor, WriteToOtherMemoryIsNotMistaken) {
  Tensor a = leaf(2), other = leaf(3);
  const Tensor y = square(a);
  fill(other, 7);
  backward(y);
  EXPECT_EQ(grad(a).item(), 4.0);
  fill(a, 5);  // after backward the save is gone: an optimizer may write
  backward(square(a));
  EXPECT_EQ(grad(a).item(), 14.0);
}

TEST(SavedTensor, OfTheOutputMakesNoCycle) {
  const std::size_t live = allocator(kCpu).stats().allocated;
  for (int i = 0; i < 3; ++i) apply(KeepsOutput{}, leaf(2));
  EXPECT_EQ(allocator(kCpu).stats().allocated, live);
}

TEST(SavedTensor, BytesAreCountedAndFreedAsBackwardWalks) {
  const std::size_t before = saved_bytes();
  const Tensor a = leaf(2);
  const Tensor b = square(a), c = square(b);
  EXPECT_EQ(saved_bytes(), before + 16);
  std::vector<std::size_t> seen;
  register_hook(b, [&](const Tensor&) {
    seen.push_back(saved_bytes() - before);
    return Tensor();
  });
  backward(c);
  EXPECT_EQ(seen, (std::vector<std::size_t>{8}))
      << "the younger save is freed before the older is used";
  EXPECT_EQ(saved_bytes(), before);
  {
    const Tensor dropped = square(a);
    EXPECT_EQ(saved_bytes(), before + 8);
  }
  EXPECT_EQ(saved_bytes(), before);
}

TEST(SavedTensor, MovesCountOnce) {
  const std::size_t before = saved_bytes();
  {
    SavedTensor a, b;
    a.save_input(Tensor::zeros({4}, DType::f32));
    EXPECT_EQ(saved_bytes(), before + 16);
    b = std::move(a);
    SavedTensor c(std::move(b));
    EXPECT_EQ(saved_bytes(), before + 16);
    EXPECT_TRUE(c.was_defined());
    EXPECT_EQ(c.get("x").numel(), 4);
    c.save_input(Tensor());
    EXPECT_FALSE(c.was_defined());
    EXPECT_FALSE(c.get("x").defined());
    EXPECT_EQ(saved_bytes(), before);
  }
  EXPECT_EQ(saved_bytes(), before);
}

}  // namespace
}  // namespace duet::test
