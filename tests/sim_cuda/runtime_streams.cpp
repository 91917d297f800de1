// The fake CUDA runtime: streams, events and synchronisation.
#include <cuda_runtime_api.h>

#include "tests/sim_cuda/runtime_calls.h"
#include "tests/sim_cuda/streams.h"

using sim::do_on_device;
using sim::on_device;

extern "C" {

cudaError_t CUDARTAPI cudaStreamCreate(cudaStream_t* stream) {
  return do_on_device([&] { *stream = sim::create_stream(cudaStreamDefault); });
}
cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return do_on_device([&] { *stream = sim::create_stream(flags); });
}
cudaError_t CUDARTAPI cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                                   int /*priority*/) {
  return do_on_device([&] { *stream = sim::create_stream(flags); });
}
cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream) {
  return do_on_device([&] { sim::destroy_stream(stream); });
}
cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream) {
  return do_on_device([&] { sim::synchronize(stream); });
}
cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t stream) {
  return on_device([&] { return sim::poll(stream) ? cudaSuccess : cudaErrorNotReady; });
}
cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                          unsigned /*flags*/) {
  return do_on_device([&] { sim::wait_event(stream, event); });
}
cudaError_t CUDARTAPI cudaDeviceSynchronize() {
  return do_on_device([] { sim::synchronize_all(); });
}

cudaError_t CUDARTAPI cudaEventCreate(cudaEvent_t* event) {
  return do_on_device([&] { *event = sim::create_event(cudaEventDefault); });
}
cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return do_on_device([&] { *event = sim::create_event(flags); });
}
cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
  return do_on_device([&] { sim::destroy_event(event); });
}
cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return do_on_device([&] { sim::record_event(event, stream); });
}
cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event) {
  return on_device([&] { return sim::poll_event(event) ? cudaSuccess : cudaErrorNotReady; });
}
cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t event) {
  return do_on_device([&] { sim::synchronize_event(event); });
}
cudaError_t CUDARTAPI cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return on_device([&] { return sim::elapsed_ms(ms, start, end); });
}

}  // extern "C"
