// Every test of ops runs on poisoned memory: an op that reads what was never written, or what was
// given back, gives NaN. Tests of the harness itself do not: they plant such a read, and the check
// made for it must be the one that finds it.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string_view>

#include "runtime/allocator.h"
#include "runtime/tensor.h"

namespace duet::test {
namespace {

class PoisonMemory final : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo& test) override {
    const std::string_view suite = test.test_suite_name();
    const bool of_harness = suite.ends_with("/Harness") || suite.ends_with("/PlantedFaults");
    allocator(kCpu).set_poison(!of_harness);
  }
};

bool poison_every_test() {
  testing::UnitTest::GetInstance()->listeners().Append(
      std::make_unique<PoisonMemory>().release());  // gtest owns it
  return true;
}
const bool kPoisoned = poison_every_test();

TEST(PoisonedMemory, IsNaNBeforeAndAfterItsUse) {
  ASSERT_TRUE(kPoisoned);
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
