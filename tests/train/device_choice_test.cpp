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
  const auto refused = [](const char* word) {
    return error_of(ErrorKind::usage, [&] { device_key(word, "--device"); });
  };
  EXPECT_EQ(refused("quantum"), "--device: got \"quantum\", expected one of auto, cpu, cuda");
  EXPECT_EQ(refused("cpuu"),
            "--device: got \"cpuu\", expected one of auto, cpu, cuda; did you mean cpu?");
  for (const char* gpu : {"gpu", "GPU", "gpu:0", "nvidia", "CUDA", "cuda:", "cuda:x", "cuda:-1"}) {
    expect_in("; did you mean cuda?", refused(gpu));
  }
  expect_in("device: got \"gpu\"", error_of(ErrorKind::usage, [] { choose_device("gpu"); }));
}

TEST(DeviceChoice, OneGpuIsSupported) {
  EXPECT_EQ(device_key("cuda:0", "--device"), "cuda");
  EXPECT_EQ(error_of(ErrorKind::usage, [] { device_key("cuda:3", "--device"); }),
            "--device: got \"cuda:3\", expected cuda or cuda:0: one GPU is supported, the first; "
            "CUDA_VISIBLE_DEVICES=3 makes another one the first");
}

TEST(DeviceChoice, AFallbackIsWorthALine) {
  const DeviceChoice fell_back{kCpu, "auto: no usable GPU: none"};
  EXPECT_EQ(fallback_notice("auto", fell_back),
            kCudaBuild ? "device: cpu: auto: no usable GPU: none" : "");
  EXPECT_EQ(fallback_notice("cpu", {kCpu, "chosen"}), "");
  EXPECT_EQ(fallback_notice("auto", {Device{DeviceType::cuda, 0}, "auto: it is usable"}), "");
}

TEST(DeviceChoice, ABuildWithoutCudaSaysSo) {
  if (kCudaBuild) GTEST_SKIP() << "this build has CUDA";
  const DeviceChoice automatic = choose_device("auto");
  EXPECT_EQ(automatic.device, kCpu);
  EXPECT_EQ(automatic.reason, "auto: this build has no CUDA");
  expect_in("this build has no CUDA: got cuda",
            error_of(ErrorKind::usage, [] { choose_device("cuda"); }));
}

TEST(DeviceChoice, APlanForCudaAsksForNoGpu) {
  EXPECT_EQ(planning_device("cuda"), kMetaCuda);
  EXPECT_EQ(planning_device("cpu"), kMeta);
  EXPECT_EQ(planning_device("auto"), meta_for(training_device("auto")));
  error_of(ErrorKind::usage, [] { planning_device("tpu"); });
}

}  // namespace
}  // namespace duet::test
