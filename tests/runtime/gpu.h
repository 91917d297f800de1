// Tests that need a GPU, real or simulated: if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/cuda_status.h"

namespace duet::test {

// Whether there is a usable one. With DUET_REQUIRE_CUDA=1 its absence fails the test.
inline bool has_gpu() {
  const CudaStatus& status = cuda_status();
  const char* const required = std::getenv("DUET_REQUIRE_CUDA");
  if (!status.usable && required != nullptr && required[0] == '1') {
    ADD_FAILURE() << "DUET_REQUIRE_CUDA=1: " << status.reason;
  }
  return status.usable;
}

}  // namespace duet::test
