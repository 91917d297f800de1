// What every call of the fake CUDA runtime begins and ends with: the lock, and CUDA's last error.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>

#include "tests/sim_cuda/streams.h"

namespace sim {

// While a call of the API runs.
class Call {
 public:
  // cudaSuccess where there is a usable device, else what every call answers.
  cudaError_t device_error() const;
  // Remembers an error as cudaGetLastError's, and returns it.
  cudaError_t answer(cudaError_t error) const;

 private:
  std::unique_lock<std::recursive_mutex> lock_{api_mutex()};
};

// The body of a call that needs a device: `return on_device([&] { ...; return cudaSuccess; });`
template <class Body>
cudaError_t on_device(const Body& body) {
  const Call call;
  const cudaError_t error = call.device_error();
  return call.answer(error == cudaSuccess ? body() : error);
}

// The same for calls that cannot fail otherwise.
template <class Body>
cudaError_t do_on_device(const Body& body) {
  return on_device([&] {
    body();
    return cudaSuccess;
  });
}

}  // namespace sim
