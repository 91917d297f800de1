#include "train/device_choice.h"

#include <gtest/gtest.h>

#include "tests/runtime/errors.h"

namespace duet::test {
namespace {

TEST(DeviceChoice, TheCpuIsChosenWithoutAskingCuda) {
  const DeviceChoice cpu = choose_device("cpu");
  EXPECT_EQ(cpu.device, kCpu);
  EXPECT_EQ(cpu.reason, "chosen");
  EXPECT_EQ(device_words(cpu.device), "cpu");
}

TEST(DeviceChoice, OtherWordsAreRefused) {
  EXPECT_EQ(error_of(ErrorKind::usage, [] { choose_device("tpu"); }),
            "device: got \"tpu\", expected auto, cpu or cuda");
}

TEST(DeviceChoice, ABuildWithoutCudaSaysSo) {
  if (kCudaBuild) GTEST_SKIP() << "this build has CUDA";
  const DeviceChoice automatic = choose_device("auto");
  EXPECT_EQ(automatic.device, kCpu);
  EXPECT_EQ(automatic.reason, "auto: this build has no CUDA");
  expect_in("this build has no CUDA: got cuda",
            error_of(ErrorKind::usage, [] { choose_device("cuda"); }));
}

}  // namespace
}  // namespace duet::test
