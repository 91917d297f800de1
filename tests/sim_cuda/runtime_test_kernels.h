// A kernel for the test of the fake runtime, launched as the product launches its own.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace sim {

struct FloatView {  // as the product's views: a pointer among other things
  const float* data;
  std::int64_t size;
};

// y[i] = 2 x[i]
void launch_twice(cudaStream_t stream, FloatView x, float* y);

}  // namespace sim
