// Every test of ops runs on poisoned memory: an op that reads what was never written, or what was
// given back, gives NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "runtime/allocator.h"
#include "runtime/tensor.h"

namespace duet::test {
namespace {

class PoisonedMemory final : public testing::Environment {
 public:
  void SetUp() override { allocator(kCpu).set_poison(true); }
};

const testing::Environment* const kPoisoned =
    testing::AddGlobalTestEnvironment(std::make_unique<PoisonedMemory>().release());

TEST(PoisonedMemory, IsNaNBeforeAndAfterItsUse) {
  ASSERT_NE(kPoisoned, nullptr);
  const float* freed = nullptr;
  {
    const Tensor t = Tensor::empty({1000}, DType::f32);
    for (std::int64_t i = 0; i < t.numel(); ++i) ASSERT_TRUE(std::isnan(t.data<float>()[i]));
    freed = t.data<float>();
  }
  EXPECT_TRUE(std::isnan(*freed));  // its block is cached: still the process's memory
}

}  // namespace
}  // namespace duet::test
