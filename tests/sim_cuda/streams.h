// The queues of the fake runtime: operations wait in their stream until something makes them run
// (RuntimeOptions::schedule). For the calls of the fake runtime and the fake libraries on it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <mutex>

namespace sim {

// Held by every call of the API: the simulator knows one caller at a time.
std::recursive_mutex& api_mutex();

// Puts an operation on the stream, which is checked. `what` names it in reports and lives for ever.
void enqueue(cudaStream_t stream, const char* what, std::function<void()> run);

void synchronize(cudaStream_t stream);
void synchronize_all();
// Whether the stream is empty; lets one of its operations run if not, so that a loop that polls
// ends.
bool poll(cudaStream_t stream);

cudaStream_t create_stream(unsigned flags);
// Operations still on the stream run some time; whoever uses it from now on fails.
void destroy_stream(cudaStream_t stream);

cudaEvent_t create_event(unsigned flags);
void destroy_event(cudaEvent_t event);
void record_event(cudaEvent_t event, cudaStream_t stream);
void wait_event(cudaStream_t stream, cudaEvent_t event);  // fails if it was never recorded
void synchronize_event(cudaEvent_t event);                // likewise
bool poll_event(cudaEvent_t event);
cudaError_t elapsed_ms(float* ms, cudaEvent_t start, cudaEvent_t end);

}  // namespace sim
